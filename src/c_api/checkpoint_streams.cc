// Checkpoints down and up pipes, sockets and functions of the caller's.
#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "src/c_api/calling_out.h"
#include "src/c_api/checkpoint_reader.h"
#include "src/c_api/checkpoint_saving.h"
#include "src/c_api/options.h"
#include "src/c_api/progress.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/limited_files.h"
#include "src/runtime/status.h"
#include "weft.h"

namespace weft::c_api {
namespace {

constexpr std::string_view kCallers = "the caller's function";

// A function of the caller's as the one file of a file system.
std::shared_ptr<CallersFile> FileOf(const weft_source& source) {
  auto owner = UserData::Share(source.user_data, source.release);
  const auto read = [source, owner = std::move(owner)](uint64_t at, void* data, size_t size) -> absl::StatusOr<size_t> {
    size_t given = 0;
    weft_error* error = nullptr;
    {
      const CallingOut out;  // perhaps on a thread of the library
      error = source.read(source.user_data, at, data, size, &given);
    }
    if (error != nullptr) return TakeError(error);
    if (given <= size) return given;
    return UserError("weft_source.read was asked for ", size, " bytes and says that it gave ", given);
  };
  const auto size = std::min<uint64_t>(source.size, std::numeric_limits<int64_t>::max());
  return std::make_shared<CallersFile>(std::string(kCallers), static_cast<int64_t>(size), read);
}

CallersFile FileOf(const weft_sink& sink) {
  return CallersFile(std::string(kCallers), [sink](const void* data, size_t size) -> absl::Status {
    const CallingOut out;
    weft_error* const error = sink.write(sink.user_data, data, size);
    return error == nullptr ? absl::OkStatus() : TakeError(error);
  });
}

absl::StatusOr<weft_source> ReadSource(const weft_source* source) {
  WEFT_NOT_NULL(source);
  weft_source s;
  WEFT_RETURN_IF_ERROR(ReadOptions(source, sizeof(s), "weft_source", &s));
  if (s.read == nullptr) WEFT_RETURN_IF_ERROR(CheckDescriptor(s.fd, /*for_write=*/false, "weft_source.fd"));
  return s;
}

// The release of a source runs once, whatever becomes of the call.
class ReleaseOfSource {
 public:
  explicit ReleaseOfSource(const weft_source* source) {
    // A struct that is refused for what else it says names its release all the same.
    if (source != nullptr) ReadOptions(source, sizeof(source_), "weft_source", &source_).IgnoreError();
  }
  ~ReleaseOfSource() { RunRelease(source_.release, source_.user_data); }
  // From here on somebody else's.
  void HandOver() { source_.release = nullptr; }

 private:
  weft_source source_ = {};
};

// Tensors as they arrive, each whole before it becomes the engine's.
class Arriving {
 public:
  Arriving(lazy::Engine& engine, const lazy::Where& place) : engine_(engine), place_(place) {}

  StreamHandler Handler() {
    return {.header = {},
            .tensor = [this](const TensorRecord& tensor) { return Begin(tensor); },
            .piece = [this](uint32_t, uint64_t, std::span<const std::byte> data) { return Add(data); }};
  }
  // Values by the tensors' ids.
  std::vector<Ref<lazy::Tensor>> Take() { return std::move(values_); }

 private:
  absl::Status Begin(const TensorRecord& tensor) {
    now_ = tensor;
    WEFT_RETURN_IF_ERROR(CheckedDType(static_cast<uint32_t>(tensor.dtype)).status());
    WEFT_RETURN_IF_ERROR(CheckedBytes(tensor.logical, tensor.dims.data(), tensor.dims.size()).status());
    bytes_.clear();
    bytes_.reserve(tensor.bytes);  // they have arrived
    return bytes_.size() == tensor.bytes ? End() : absl::OkStatus();
  }
  absl::Status Add(std::span<const std::byte> data) {
    bytes_.insert(bytes_.end(), data.begin(), data.end());
    return bytes_.size() == now_.bytes ? End() : absl::OkStatus();
  }
  absl::Status End() {
    if (values_.size() <= now_.id) values_.resize(now_.id + 1);
    WEFT_ASSIGN_OR_RETURN(
        values_[now_.id],
        engine_.FromFilled(place_, ir::Type::Tensor(now_.logical, Dims(now_.dims.begin(), now_.dims.end())),
                           [&](std::span<std::byte> out) {
                             ToValues(now_.dtype, now_.logical, bytes_, out);
                             return absl::OkStatus();
                           }));
    bytes_ = {};
    return absl::OkStatus();
  }

  lazy::Engine& engine_;
  const lazy::Where place_;
  TensorRecord now_;
  std::vector<std::byte, LargeStdAllocator<std::byte>> bytes_;
  std::vector<Ref<lazy::Tensor>> values_;
};

absl::StatusOr<Ref<TreeObject>> LoadStream(lazy::Engine& engine, const lazy::Where& place, int fd,
                                           const std::string& name, FileSystem* fs) {
  Arriving arriving(engine, place);
  const StreamHandler handler = arriving.Handler();
  WEFT_ASSIGN_OR_RETURN(StreamResult result, ReadCheckpointStream(fd, name, handler, fs));
  TensorTree tree{.tree = std::move(result.tree), .values = arriving.Take()};
  return MakeRef<TreeObject>(std::move(tree));
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_checkpoint_save_to(weft_context* ctx, const weft_sink* sink, weft_tree* tree,
                                    const weft_checkpoint_options* options) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Foreign foreign, ReadForeign(options));  // first: it holds what the caller handed over
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> object, Get(tree, "tree"));
    WEFT_NOT_NULL(sink);
    weft_sink to;
    WEFT_RETURN_IF_ERROR(ReadOptions(sink, sizeof(to), "weft_sink", &to));
    if (to.write == nullptr) WEFT_RETURN_IF_ERROR(CheckDescriptor(to.fd, /*for_write=*/true, "weft_sink.fd"));
    WEFT_ASSIGN_OR_RETURN(SaveOptions how, ReadSaveOptions(options));
    if (foreign.format != FileFormat::kWeft) {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "only Weft's own format goes down a stream; ",
                         NameOf(foreign.format), " is written by weft_checkpoint_save");
    }
    std::string no_name;
    WEFT_ASSIGN_OR_RETURN(const Following following, Following::Of(options, &no_name));
    if (!how.base.empty()) return UserError("a stream has no folder, so weft_checkpoint_options.base is NULL for it");
    if (following.any()) return UserError("a stream has no name, so weft_checkpoint_options.pointer is NULL for it");
    WEFT_ASSIGN_OR_RETURN(const TensorTree now, object->Copy());
    WEFT_RETURN_IF_ERROR(now.HasValues());
    WEFT_RETURN_IF_ERROR(Values::CheckEngine(now, context->engine()));
    Tree saved;
    std::vector<uint32_t> leaves;
    WEFT_ASSIGN_OR_RETURN(std::tie(saved, leaves), now.Tied());
    Values values;
    WEFT_RETURN_IF_ERROR(values.Take(now, leaves));
    WEFT_RETURN_IF_ERROR(values.Evaluate(context->engine()));
    lazy::Services& services = context->engine().services();
    how.held = context->engine().options().held;
    how.progress = Progress(foreign.progress, foreign.user_data,
                            [&services, before = services.cancels()] { return services.Interrupted(before); });
    if (to.write == nullptr) {
      return StreamCheckpoint(to.fd, PathOfDescriptor(to.fd), saved, values, how);
    }
    CallersFile file = FileOf(to);
    how.fs = &file;
    how.writes_itself = true;
    return StreamCheckpoint(CallersFile::kOnly, std::string(kCallers), saved, values, how);
  });
}

weft_error* weft_checkpoint_load_from(weft_context* ctx, const weft_source* source, weft_device* device,
                                      weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    ReleaseOfSource release(source);
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, context->engine()));
    WEFT_ASSIGN_OR_RETURN(const weft_source from, ReadSource(source));
    const Interruptible until_cancelled = UntilCancelled(context->engine());
    Ref<TreeObject> tree;
    if (from.read == nullptr) {
      WEFT_ASSIGN_OR_RETURN(tree, LoadStream(context->engine(), place, from.fd, PathOfDescriptor(from.fd), nullptr));
    } else {
      release.HandOver();
      const std::shared_ptr<CallersFile> file = FileOf(from);
      WEFT_ASSIGN_OR_RETURN(
          tree, LoadStream(context->engine(), place, CallersFile::kOnly, std::string(kCallers), file.get()));
    }
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(std::move(tree)));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_open_from(weft_context* ctx, const weft_source* source,
                                             const weft_open_options* options, weft_checkpoint_reader** out) noexcept {
  return Guard([&]() -> absl::Status {
    ReleaseOfSource release(source);
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(const weft_source from, ReadSource(source));
    WEFT_ASSIGN_OR_RETURN(const ReaderOptions how, ReadOpenOptions(options));
    const Interruptible until_cancelled = UntilCancelled(context->engine());
    Ref<ReaderObject> reader;
    if (from.read == nullptr) {
      const std::shared_ptr<FileSystem> descriptors(DescriptorFiles(), [](FileSystem*) {});
      WEFT_ASSIGN_OR_RETURN(reader, ReaderObject::Open(*context, PathOfDescriptor(from.fd), how, descriptors));
    } else {
      release.HandOver();
      const std::shared_ptr<CallersFile> file = FileOf(from);  // before anything else can fail: the release is its now
      WEFT_ASSIGN_OR_RETURN(reader, ReaderObject::Open(*context, std::string(kCallers), how, file));
    }
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_checkpoint_reader>(std::move(reader)));
    return absl::OkStatus();
  });
}

}  // extern "C"
