// Values on their way to other devices of their backend: devices copy the parts, and cut and join those that are no parts there.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/device_copies.h"
#include "src/lazy/engine.h"
#include "src/lazy/value/pieces.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "src/runtime/float_environment.h"

namespace weft::lazy {

namespace {

// The buffers of a known value, which no launch takes over as long as this lives.
class Holding {
 public:
  Holding() = default;
  ~Holding() { Set({}); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  void Set(Shards shards) {
    for (const Ref<Buffer>& shard : shards) shard->Hold();
    for (const Ref<Buffer>& shard : shards_) shard->Unhold();
    shards_ = std::move(shards);
  }
  const Shards& shards() const { return shards_; }

 private:
  Shards shards_;
};

// Puts the boxes of a grid, in row-major order, together: along the last dimension first.
ir::Value Joined(ir::Builder& b, std::vector<std::pair<ir::Box, ir::Value>> grid) {
  for (size_t d = grid[0].first.starts.size(); d-- > 0;) {
    std::vector<std::pair<ir::Box, ir::Value>> joined;
    for (size_t i = 0, end = 0; i < grid.size(); i = end) {
      ir::Box box = grid[i].first;
      ir::Values row;
      const auto in_row = [&](const ir::Box& other) {
        for (size_t k = 0; k < box.starts.size(); ++k) {
          if (k != d && other.starts[k] != box.starts[k]) return false;
        }
        return other.starts[d] == box.starts[d] + box.sizes[d];
      };
      box.sizes[d] = 0;
      for (; end < grid.size() && in_row(grid[end].first); ++end) {
        box.sizes[d] += grid[end].first.sizes[d];
        row.push_back(grid[end].second);
      }
      joined.emplace_back(box, row.size() == 1
                                   ? row[0]
                                   : ops::Call(b, ops::kOp_concatenate, std::move(row), {static_cast<int64_t>(d)}));
    }
    grid = std::move(joined);
  }
  return grid[0].second;
}

// A number that a program takes as an argument, so that it is the same program wherever a box begins.
ir::Value Number(int64_t value) {
  const auto word = static_cast<uint32_t>(value);
  return Recorder::NewLeaf(ir::Type::Tensor(DType::kI32, {}), MakeRef<Data>(std::span(&word, 1)));
}

bool EndsTheCall(const absl::Status& status) { return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status); }

}  // namespace

// One copy: a value, its pieces, and the buffers that are made of it. Thread rule: one call's.
class Engine::Copying {
 public:
  Copying(Engine& engine, Tensor& tensor, const Placement& target)
      : engine_(engine),
        tensor_(tensor),
        dtype_(tensor.dtype()),
        dims_(tensor.dims()),
        source_(tensor.sharding()),
        target_(target) {}

  // Waits for the value, and holds it. No data: it is words.
  absl::Status HoldKnown(Ref<Data>* known);
  absl::Status Run();
  absl::StatusOr<Ref<Tensor>> Take(ir::Location location) {
    return engine_.NewBufferTensor(target_, tensor_.type(), std::move(made_), location, alike_);
  }

 private:
  // Gives each piece its buffer on the device that has it.
  absl::Status Cut();
  // Gives each device its part, of the pieces that have come there.
  absl::Status Join();
  ir::Value Leaf(MeshState& state, const Dims& dims, const Ref<Buffer>& buffer) const {
    return Recorder::NewLeaf(ir::Type::Tensor(dtype_, dims), MakeRef<Data>(state.whole(), Shards{buffer}));
  }

  Engine& engine_;
  Tensor& tensor_;
  const DType dtype_;
  const Dims dims_;
  Placement source_;
  const Placement target_;
  Holding held_;
  std::vector<Piece> pieces_;
  Shards made_;                // a holder of the target each
  std::vector<size_t> alike_;  // of these holders the buffer is the source's own
};

absl::Status Engine::Copying::Cut() {
  const std::span<Device* const> from = source_.mesh().holders();
  for (size_t j = 0; j < from.size(); ++j) {
    const ir::Box part = source_.BoxOf(dims_, j);
    ir::Builder b;
    std::vector<Piece*> cut;
    std::vector<size_t> which;  // of the boxes each of these is; several devices may want one
    std::vector<ir::Box> boxes;
    ir::Values values;
    Lock lock(engine_.recorder_, Lock::To::kNote);
    MeshState& state = engine_.recorder_.StateOf(*from[j]);
    ir::Value leaf;
    for (Piece& piece : pieces_) {
      if (piece.from != j) continue;
      piece.buffer = held_.shards()[j];
      if (piece.box == part) continue;
      cut.push_back(&piece);
      const auto same = std::ranges::find(boxes, piece.box);
      which.push_back(static_cast<size_t>(same - boxes.begin()));
      if (same != boxes.end()) continue;
      boxes.push_back(piece.box);
      if (!leaf) leaf = Leaf(state, part.sizes, piece.buffer);
      ir::Values operands = {leaf};
      for (const int64_t start : Within(piece.box, part).starts) operands.push_back(Number(start));
      const ir::Ints sizes(piece.box.sizes.begin(), piece.box.sizes.end());
      values.push_back(ops::Call(b, ops::kOp_dynamic_slice, std::move(operands), {sizes}));
    }
    if (values.empty()) continue;
    WEFT_RETURN_IF_ERROR(b.status());
    WEFT_RETURN_IF_ERROR(engine_.evaluator_.ComputeOver(lock, state, values, std::vector<Ref<Data>>(values.size())));
    for (size_t i = 0; i < cut.size(); ++i) cut[i]->buffer = DataOf(values[which[i]])->whole();
  }
  return absl::OkStatus();
}

absl::Status Engine::Copying::Join() {
  const std::span<Device* const> to = target_.mesh().holders();
  for (size_t i = 0, at = 0; i < to.size(); ++i) {
    const size_t first = at;
    while (at < pieces_.size() && pieces_[at].to == i) ++at;
    if (at == first + 1) {
      const Piece& only = pieces_[first];
      if (only.buffer == held_.shards()[only.from]) alike_.push_back(i);
      made_.push_back(only.buffer);
      continue;
    }
    Lock lock(engine_.recorder_, Lock::To::kNote);
    MeshState& state = engine_.recorder_.StateOf(*to[i]);
    ir::Builder b;
    std::vector<std::pair<ir::Box, ir::Value>> grid;
    for (const Piece& piece : std::span(pieces_).subspan(first, at - first)) {
      grid.emplace_back(piece.box, Leaf(state, piece.box.sizes, piece.buffer));
    }
    const ir::Value whole = Joined(b, std::move(grid));
    WEFT_RETURN_IF_ERROR(b.status());
    const Ref<Data> nothing_offered;
    WEFT_RETURN_IF_ERROR(engine_.evaluator_.ComputeOver(lock, state, {&whole, 1}, {&nothing_offered, 1}));
    made_.push_back(DataOf(whole)->whole());
  }
  return absl::OkStatus();
}

absl::Status Engine::Copying::Run() {
  auto* const copies = dynamic_cast<DeviceCopies*>(target_.mesh().backend());
  pieces_ = PiecesOf(source_, target_, dims_);
  WEFT_RETURN_IF_ERROR(Cut());
  int64_t moved = 0;
  for (Piece& piece : pieces_) {
    Device* const to = target_.mesh().holders()[piece.to];
    if (piece.buffer->device() == to) continue;
    WEFT_ASSIGN_OR_RETURN(piece.buffer, engine_.WithRoom(to, [&] { return copies->CopyToDevice(piece.buffer, to); }));
    moved += piece.buffer->bytes();
  }
  WEFT_RETURN_IF_ERROR(Join());
  for (const Ref<Buffer>& buffer : made_)
    WEFT_RETURN_IF_ERROR(engine_.services_.WaitFor(buffer->ready(), Part::kCopying));
  engine_.metrics_->Add(Counter::kBytesBetweenDevices, moved);
  return absl::OkStatus();
}

absl::Status Engine::Copying::HoldKnown(Ref<Data>* known) {
  {
    Lock lock(engine_.recorder_, Lock::To::kNote);
    WEFT_RETURN_IF_ERROR(engine_.recorder_.CheckKnowable(&tensor_, "copy: the tensor"));
    engine_.recorder_.MustShow(tensor_, Replay::Miss::kRead);
    const ir::Value value = tensor_.value();
    WEFT_ASSIGN_OR_RETURN(Data * data, engine_.Materialize(lock, tensor_, value));
    if (data->word_count > 0) return absl::OkStatus();
    *known = Ref<Data>::Share(data);
    source_ = data->sharding();
    held_.Set({data->shards().begin(), data->shards().end()});
  }
  for (const Ref<Buffer>& shard : held_.shards())
    WEFT_RETURN_IF_ERROR(engine_.services_.WaitFor(shard->ready(), Part::kResults));
  return absl::OkStatus();
}

absl::StatusOr<Ref<Tensor>> Engine::CopyOver(Tensor* tensor, const Where& where, std::string_view spec,
                                             ir::Location location) {
  const FloatScope floats;
  std::optional<Placement> target;
  {
    Lock lock(recorder_, Lock::To::kNote);
    WEFT_ASSIGN_OR_RETURN(const Place place, recorder_.CheckWhere(where));
    WEFT_ASSIGN_OR_RETURN(target, PlacementOf(place.state->mesh, spec, tensor->type()));
  }
  Backend* const backend = target->mesh().backend();
  const Dims& dims = tensor->dims();
  constexpr int64_t kMostIndex = std::numeric_limits<int32_t>::max();
  if (&tensor->engine() != this || backend != tensor->sharding().mesh().backend() || tensor->type().count() == 0 ||
      dynamic_cast<DeviceCopies*>(backend) == nullptr ||
      std::ranges::any_of(dims, [](int64_t size) { return size > kMostIndex; })) {
    return Ref<Tensor>();
  }
  Copying copying(*this, *tensor, *target);
  bool words = false;
  WEFT_RETURN_IF_ERROR(UntilReadable(tensor, [&](Ref<Data>* known) {
    const absl::Status status = copying.HoldKnown(known);
    words = status.ok() && *known == nullptr;
    return status;
  }));
  if (words) return Ref<Tensor>();
  if (const absl::Status copied = copying.Run(); !copied.ok()) {
    if (EndsTheCall(copied)) return copied;
    services_.LogLazily(LogLevel::kDebug, [&] {
      return absl::StrCat("a copy of ", ir::ShortType(tensor->type()), " to ", target->mesh().name(),
                          " goes over the host: ", copied.message());
    });
    return Ref<Tensor>();
  }
  return copying.Take(location);
}

}  // namespace weft::lazy
