// weft_checkpoint_save_job: a checkpoint that all processes of a job write together (serialization/checkpoint_shards.h).
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "serialization/checkpoint_shards.h"
#include "src/c_api/checkpoint_saving.h"
#include "src/c_api/job_object.h"
#include "src/c_api/optimizer_parts.h"
#include "src/c_api/options.h"
#include "src/c_api/progress.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using distributed::CollectiveKind;

constexpr SpanName kSave{.text = "save checkpoint", .kind = SpanKind::kFile};

// --- Between the processes --------------------------------------------------------------------------------------------------

class Exchange {
 public:
  Exchange(const JobObject& job, const CancelToken& cancel) : job_(job), cancel_(cancel) {}

  int rank() const { return job_.job->place().rank; }
  int size() const { return job_.job->place().size; }
  // Tells whether rank 0 may have come further than this process knows.
  bool Unheard() const { return job_.job->Unheard(); }

  absl::Status Run(CollectiveKind kind, std::span<const std::byte> in, std::span<std::byte> out,
                   std::span<const distributed::Pair> pairs = {}) const {
    distributed::Collective call = {.kind = kind, .dtype = DType::kU8, .count = static_cast<int64_t>(in.size())};
    call.pairs = pairs;
    call.input = in.data();
    call.output = out.data();
    call.where = "weft_checkpoint_save_job";
    distributed::Patience patience = job_.PatienceFrom(MonotonicNow());
    patience.cancel = &cancel_;
    patience.began_ns = MonotonicNow();
    return job_.job->Run(call, patience);
  }

  // The bytes of all processes, by rank.
  absl::StatusOr<std::vector<std::string>> All(std::string_view own) const {
    const uint64_t length = own.size();
    std::vector<uint64_t> lengths(static_cast<size_t>(size()));
    WEFT_RETURN_IF_ERROR(Run(CollectiveKind::kAllGather, std::as_bytes(std::span(&length, 1)),
                             std::as_writable_bytes(std::span(lengths))));
    const uint64_t most = *std::ranges::max_element(lengths);
    std::vector<std::string> texts(lengths.size());
    if (most == 0) return texts;
    std::string padded(own), all(most * lengths.size(), '\0');
    padded.resize(most);
    WEFT_RETURN_IF_ERROR(
        Run(CollectiveKind::kAllGather, std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all))));
    for (size_t i = 0; i < texts.size(); ++i) texts[i] = all.substr(i * most, lengths[i]);
    return texts;
  }

  // The reports of all processes, by rank.
  absl::StatusOr<std::vector<ShardReport>> Reports(const ShardReport& own) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> texts, All(EncodeReport(own)));
    std::vector<ShardReport> reports(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(reports[i], DecodeReport(texts[i]));
    }
    return reports;
  }

 private:
  const JobObject& job_;
  const CancelToken& cancel_;
};

absl::Status FirstFailure(std::span<const ShardReport> reports) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const absl::Status& status = reports[rank].status;
    if (!status.ok()) return WithText(status, absl::StrCat("rank ", rank, " of the job: ", status.message()));
  }
  return absl::OkStatus();
}

// --- What is saved ----------------------------------------------------------------------------------------------------------

// A tree's tensors: those that every process has, and those of which each has a part.
struct Contents {
  Tree tree;
  std::vector<uint32_t> leaves;  // of each tensor its value in the caller's tree
  std::vector<ShardedTensor> tensors;
};

// A dict of optimizer_parts.h that this process has a part of becomes a whole one, whose tensors' parts are in all processes.
class Joining {
 public:
  Joining(Contents* contents, const HeldTypes& held, int rank, int size)
      : contents_(*contents), held_(held), rank_(rank), size_(size) {}

  absl::Status Run() {
    Tree& tree = contents_.tree;
    for (Tree::NodeId id = 0; id < tree.size(); ++id) {
      if (tree.node(id).kind != Tree::Kind::kDict) continue;
      const Tree::NodeId rank = tree.Find(id, state_keys::kRank), ranks = tree.Find(id, state_keys::kRanks);
      const Tree::NodeId shapes = tree.Find(id, state_keys::kShapes), slots = tree.Find(id, state_keys::kSlots);
      if (std::ranges::count(std::array{rank, ranks, shapes, slots}, Tree::kNoNode) > 0) continue;
      if (tree.node(ranks).int64 == 1) continue;
      if (tree.node(rank).int64 != rank_ || tree.node(ranks).int64 != size_) {
        return UserError("the state at '", tree.PathOf(id), "' is the part of rank ", tree.node(rank).int64, " of ",
                         tree.node(ranks).int64, ", and this process is rank ", rank_, " of ", size_);
      }
      WEFT_RETURN_IF_ERROR(Slots(shapes, slots));
      tree.SetInt64(rank, 0);
      tree.SetInt64(ranks, 1);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Slots(Tree::NodeId shapes, Tree::NodeId slots) {
    const Tree& tree = contents_.tree;
    for (Tree::NodeId slot = tree.node(slots).first_child; slot != Tree::kNoNode; slot = tree.node(slot).next_sibling) {
      Tree::NodeId shape = tree.node(shapes).first_child;
      for (Tree::NodeId at = tree.node(slot).first_child; at != Tree::kNoNode; at = tree.node(at).next_sibling) {
        if (shape == Tree::kNoNode || tree.node(at).kind != Tree::Kind::kTensor) {
          return UserError("'", tree.PathOf(at), "' is no part of a state that has shapes");
        }
        WEFT_RETURN_IF_ERROR(Join(at, shape));
        shape = tree.node(shape).next_sibling;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Join(Tree::NodeId at, Tree::NodeId shape) {
    Tree& tree = contents_.tree;
    const uint32_t leaf = tree.node(at).tensor;
    Dims dims;
    for (Tree::NodeId dim = tree.node(shape).first_child; dim != Tree::kNoNode; dim = tree.node(dim).next_sibling) {
      dims.push_back(tree.node(dim).int64);
    }
    const Tree::TensorLeaf& part = tree.tensors()[leaf];
    const int64_t each = (CountOf(dims) + size_ - 1) / size_;
    if (part.dims != Dims{each}) {
      return UserError("'", tree.PathOf(at), "' is ", DimsToString(part.dims), "; a part of ", DimsToString(dims),
                       " over ", size_, " processes has ", each, " elements");
    }
    const auto width = static_cast<uint64_t>(BytesOf(held_.Of(part.dtype)));
    contents_.tensors[leaf] = {static_cast<uint64_t>(CountOf(dims)) * width, static_cast<uint64_t>(each) * width};
    tree.Resize(leaf, std::move(dims));
    return absl::OkStatus();
  }

  Contents& contents_;
  const HeldTypes& held_;
  const int rank_, size_;
};

absl::StatusOr<Contents> ContentsOf(const TensorTree& now, const HeldTypes& held, int rank, int size) {
  Contents contents;
  WEFT_ASSIGN_OR_RETURN(std::tie(contents.tree, contents.leaves), now.Tied());
  for (const Tree::TensorLeaf& leaf : contents.tree.tensors()) {
    const std::optional<uint64_t> bytes = StoredBytes(held.Of(leaf.dtype), leaf.dims);
    if (!bytes.has_value()) return UserError("'", contents.tree.PathOf(leaf.node), "' is too large for a checkpoint");
    contents.tensors.push_back({.bytes = *bytes, .part_bytes = 0});
  }
  if (size > 1) WEFT_RETURN_IF_ERROR(Joining(&contents, held, rank, size).Run());
  return contents;
}

// A number that is the same where trees have the same tensors.
uint64_t Fingerprint(const Contents& contents, bool master_only) {
  std::string text = master_only ? "one file\n" : "shards\n";
  contents.tree.ForEachPath([&](Tree::NodeId id, const std::string& path) {
    if (contents.tree.node(id).kind != Tree::Kind::kTensor) return;
    const uint32_t leaf = contents.tree.node(id).tensor;
    const Tree::TensorLeaf& tensor = contents.tree.tensors()[leaf];
    absl::StrAppend(&text, path, " ", NameOf(tensor.dtype), DimsToString(tensor.dims), " ",
                    contents.tensors[leaf].part_bytes, "\n");
  });
  return Checksum64(std::as_bytes(std::span(text)));
}

// The bytes of tensors, of parts also those of other processes that this one writes.
class Bytes final : public TensorSource {
 public:
  Bytes(const Contents& contents, Values& values, int rank) : contents_(contents), values_(values), rank_(rank) {}

  // Why this process's own bytes could not be given to the others.
  const absl::Status& failed() const { return failed_; }

  // Gets what this process writes of others' parts. `all`: of all their bytes.
  absl::Status Gather(const Exchange& exchange, bool all) {
    others_.resize(contents_.tensors.size());
    for (uint32_t i = 0; i < others_.size(); ++i) {
      const ShardedTensor& tensor = contents_.tensors[i];
      if (tensor.part_bytes == 0) continue;
      WEFT_RETURN_IF_ERROR(GatherOne(exchange, i, all));
    }
    return absl::OkStatus();
  }

  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    const uint64_t each = contents_.tensors[tensor].part_bytes;
    if (each == 0) return values_.Read(tensor, offset, out);
    while (!out.empty()) {
      const uint64_t owner = offset / each, within = offset - owner * each;
      const std::span<std::byte> to = out.first(std::min<uint64_t>(out.size(), each - within));
      WEFT_RETURN_IF_ERROR(ReadOf(tensor, static_cast<int64_t>(owner), within, to));
      out = out.subspan(to.size());
      offset += to.size();
    }
    return absl::OkStatus();
  }

 private:
  // A part of the file is at most so long, with a last one that is too short to be one.
  static constexpr uint64_t kMostBeyond = kSumBytes + kLargePayload;
  // The first bytes of the parts of some processes, one behind the other.
  struct Heads {
    int64_t first = 0;  // rank
    uint64_t each = 0;
    std::vector<std::byte> bytes;
  };

  // A part of the file that begins in this process's part of the tensor ends in the next one's, or, where these are small, behind it.
  absl::Status GatherOne(const Exchange& exchange, uint32_t i, bool all) {
    const uint64_t part = contents_.tensors[i].part_bytes;
    Heads& heads = others_[i];
    heads.each = all ? part : std::min(part, kMostBeyond);
    std::vector<std::byte> own(heads.each);
    if (failed_.ok()) failed_ = values_.Read(i, 0, own);  // the others must not wait for it
    if (all || part < kMostBeyond) {
      heads.bytes.resize(heads.each * static_cast<uint64_t>(exchange.size()));
      return exchange.Run(CollectiveKind::kAllGather, own, heads.bytes);
    }
    std::vector<distributed::Pair> pairs;
    for (int32_t from = 1; from < exchange.size(); ++from) pairs.push_back({from, from - 1});
    heads.first = rank_ + 1;
    heads.bytes.resize(heads.each);
    return exchange.Run(CollectiveKind::kPermute, own, heads.bytes, pairs);
  }

  absl::Status ReadOf(uint32_t tensor, int64_t owner, uint64_t within, std::span<std::byte> out) {
    if (owner == rank_) return values_.Read(tensor, within, out);
    const Heads& heads = others_[tensor];
    const uint64_t at = static_cast<uint64_t>(owner - heads.first) * heads.each + within;
    if (owner < heads.first || within + out.size() > heads.each || at + out.size() > heads.bytes.size()) {
      return InternalError("rank ", rank_, " writes bytes of rank ", owner, " that it does not have");
    }
    std::memcpy(out.data(), heads.bytes.data() + at, out.size());
    return absl::OkStatus();
  }

  const Contents& contents_;
  Values& values_;
  const int64_t rank_;
  std::vector<Heads> others_;
  absl::Status failed_;
};

// Tensor i is piece i.
class PieceBytes final : public TensorSource {
 public:
  PieceBytes(std::span<const ShardPiece> pieces, TensorSource& whole) : pieces_(pieces), whole_(whole) {}
  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    return whole_.Read(pieces_[tensor].tensor, pieces_[tensor].offset + offset, out);
  }

 private:
  const std::span<const ShardPiece> pieces_;
  TensorSource& whole_;
};

// --- The save ---------------------------------------------------------------------------------------------------------------

struct JobSave {
  Exchange exchange;
  FilePlace place;
  Contents contents;
  Values values;
  SaveOptions options;
  bool master_only = false;

  // `ready`: how what comes before the first exchange has gone here.
  absl::Status Run(const absl::Status& ready);

 private:
  absl::Status Agree(const absl::Status& ready) const;
  absl::Status Shards(Bytes& bytes);
  absl::Status OneFile(Bytes& bytes);
  // Rank 0 writes the file of the checkpoint's name; all hear how that went.
  absl::Status Commit(Bytes& bytes, const PlacedElsewhere* elsewhere, std::span<const std::string> kept);
};

// Before anything is written: all processes save the same tensors.
absl::Status JobSave::Agree(const absl::Status& ready) const {
  ShardReport own{.status = ready, .file = {}, .places = {}};
  own.places.push_back({.payload = Fingerprint(contents, master_only)});
  WEFT_ASSIGN_OR_RETURN(const std::vector<ShardReport> all, exchange.Reports(own));
  WEFT_RETURN_IF_ERROR(FirstFailure(all));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].places == all[0].places) continue;
    return UserErrorOf(absl::StatusCode::kFailedPrecondition, "rank ", rank,
                       " saves other tensors than rank 0: paths, types, shapes, which of them are in parts, and "
                       "master_only are the same in all processes");
  }
  return absl::OkStatus();
}

absl::Status JobSave::Commit(Bytes& bytes, const PlacedElsewhere* elsewhere, std::span<const std::string> kept) {
  ShardReport done;
  if (exchange.rank() == 0) {
    const std::vector<std::string> old = ShardsOf(place);
    options.elsewhere = elsewhere;
    done.status = SaveCheckpoint(place.path, contents.tree, bytes, options);
    // Shards without a manifest go, but not where it is there all the same.
    if (done.status.ok()) {
      RemoveShards(place, kept, old);
    } else {
      RemoveShards(place, ShardsOf(place), kept);
    }
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<ShardReport> reports, exchange.Reports(done));
  return FirstFailure(reports);
}

absl::Status JobSave::OneFile(Bytes& bytes) {
  WEFT_RETURN_IF_ERROR(bytes.Gather(exchange, /*all=*/true));
  WEFT_ASSIGN_OR_RETURN(const std::vector<ShardReport> reports,
                        exchange.Reports({.status = bytes.failed(), .file = {}, .places = {}}));
  WEFT_RETURN_IF_ERROR(FirstFailure(reports));
  return Commit(bytes, nullptr, {});
}

absl::Status JobSave::Shards(Bytes& bytes) {
  const auto rank = static_cast<size_t>(exchange.rank());
  WEFT_ASSIGN_OR_RETURN(const auto plan, PlanShards(contents.tensors, exchange.size()));
  WEFT_RETURN_IF_ERROR(bytes.Gather(exchange, /*all=*/false));
  const std::string name = ShardName(place.name, exchange.rank(), exchange.size());
  PieceBytes pieces(plan[rank], bytes);
  ShardReport own{.status = bytes.failed(), .file = {}, .places = {}};
  if (own.status.ok()) {
    absl::StatusOr<ShardReport> saved = SaveShard(place, name, plan[rank], pieces, options);
    if (saved.ok())
      own = *std::move(saved);
    else
      own.status = saved.status();
  }
  // Nobody has a manifest of it yet, so that whoever fails here takes its shard back. Where rank 0 went away it may have all reports, and
  // have written one: the shard stays, and if it is in none a save an hour later removes it.
  absl::Cleanup take_back = [&] {
    if (!exchange.Unheard()) (void)place.folder.fs()->Unlink(place.folder.fd(), name.c_str());
  };
  WEFT_ASSIGN_OR_RETURN(const std::vector<ShardReport> reports, exchange.Reports(own));
  WEFT_RETURN_IF_ERROR(FirstFailure(reports));
  WEFT_RETURN_IF_ERROR(ShardPlaces::Check(plan, reports));
  // From here on a manifest may have appeared, whatever this process hears of it.
  std::move(take_back).Cancel();
  std::vector<std::string> kept;
  for (const ShardReport& report : reports) kept.push_back(report.file.name);
  const ShardPlaces places(contents.tensors, plan, reports);
  return Commit(bytes, &places, kept);
}

absl::Status JobSave::Run(const absl::Status& ready) {
  Bytes bytes(contents, values, exchange.rank());
  WEFT_RETURN_IF_ERROR(Agree(ready));
  return master_only ? OneFile(bytes) : Shards(bytes);
}

struct JobSaveOptions {
  SaveOptions save;
  bool master_only = false;
};

absl::StatusOr<JobSaveOptions> ReadJobSaveOptions(const weft_job_save_options* options) {
  weft_job_save_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof o, "weft_job_save_options", &o));
  if (o.master_only != 0 && o.master_only != 1) {
    return UserError("weft_job_save_options.master_only is ", o.master_only, "; it is 0 or 1");
  }
  JobSaveOptions read{.save = {}, .master_only = o.master_only == 1};
  WEFT_ASSIGN_OR_RETURN(read.save, ReadSaveOptions(o.file));
  weft_checkpoint_options file;
  WEFT_RETURN_IF_ERROR(ReadOptions(o.file, sizeof file, "weft_checkpoint_options", &file));
  const std::pair<bool, std::string_view> others[] = {
      {read.save.compress, "compress"},     {!read.save.base.empty(), "base"}, {file.keep_last != 0, "keep_last"},
      {file.pointer != nullptr, "pointer"}, {file.format != 0, "format"},      {file.progress != nullptr, "progress"}};
  for (const auto& [given, name] : others) {
    if (!given) continue;
    return UserErrorOf(absl::StatusCode::kUnimplemented, "weft_checkpoint_options.", name,
                       ": checkpoints that a job's processes write together do not have it");
  }
  return read;
}

absl::Status SaveOfJob(weft_context* ctx, weft_job* job, std::string file, weft_tree* tree,
                       const weft_job_save_options* options) {
  WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->BeforeWork());
  WEFT_ASSIGN_OR_RETURN(const Pin<JobObject> object, Get(job, "job"));
  WEFT_ASSIGN_OR_RETURN(const Pin<TreeObject> what, Get(tree, "tree"));
  WEFT_ASSIGN_OR_RETURN(JobSaveOptions read, ReadJobSaveOptions(options));
  WEFT_ASSIGN_OR_RETURN(const TensorTree now, what->Copy());
  WEFT_RETURN_IF_ERROR(now.HasValues());
  lazy::Engine& engine = context->engine();
  WEFT_RETURN_IF_ERROR(Values::CheckEngine(now, engine));
  lazy::Services& services = engine.services();
  const CancelToken cancel = services.StartToken(0);
  SaveTurn turn;  // given up after the values: the next one is let in when they are gone
  JobSave save{.exchange = Exchange(*object, cancel),
               .place = {},
               .contents = Contents(),
               .values = {},
               .options = std::move(read.save),
               .master_only = read.master_only};
  save.options.held = engine.options().held;
  const SaveTurn::Look look = [&services, before = services.cancels()] { return services.Interrupted(before); };
  save.options.progress = Progress(nullptr, nullptr, look);
  save.options.wait = {.look = look, .on_other_thread = context->Starter()};
  const absl::Status ready = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(save.contents,
                          ContentsOf(now, save.options.held, save.exchange.rank(), save.exchange.size()));
    WEFT_ASSIGN_OR_RETURN(save.place, PlaceOfCheckpoint(file));
    WEFT_ASSIGN_OR_RETURN(turn, SaveTurn::Enter(save.place, look, now.Bytes()));
    WEFT_RETURN_IF_ERROR(save.values.Take(now, save.contents.leaves));
    // Collectives that were recorded are over before the first of these.
    WEFT_RETURN_IF_ERROR(save.values.Evaluate(engine));
    WEFT_RETURN_IF_ERROR(save.values.Wait());
    return turn.Begin(look);
  }();
  const SpanScope span(context->trace(), kSave);
  return save.Run(ready);
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_checkpoint_save_job(weft_context* ctx, weft_job* job, const char* path, size_t path_length,
                                                weft_tree* tree, const weft_job_save_options* options) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(std::string file, Path(path, path_length));
    return SaveOfJob(ctx, job, std::move(file), tree, options);
  });
}
