// weft_checkpoint_*: trees to files and back.
#include <algorithm>
#include <tuple>

#include "absl/cleanup/cleanup.h"
#include "serialization/checkpoint_writer.h"
#include "serialization/interchange/foreign_writer.h"
#include "serialization/interchange/tensor_file.h"
#include "serialization/save_line.h"
#include "src/c_api/context.h"
#include "src/c_api/event_object.h"
#include "src/c_api/guess.h"
#include "src/c_api/options.h"
#include "src/c_api/tree_object.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/held_types.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/narrow.h"
#include "weft.h"

namespace weft::c_api {

// Thread rule: any thread; payloads are read one after the other.
class ReaderObject final : public RefCounted {
 public:
  ReaderObject(std::unique_ptr<TensorFile> reader, Ref<lazy::Engine> engine)
      : engine(std::move(engine)), reader_(std::move(reader)) {}
  const TensorFile& reader() const { return *reader_; }
  // `stored`: as its bytes lie in the file.
  absl::Status ReadTensor(uint32_t id, std::span<std::byte> out, bool stored = false) {
    engine->services().StartsWork();  // a fork may come while it is locked
    MutexLock lock(mutex_);
    return stored ? reader_->ReadStored(id, out) : reader_->ReadTensor(id, out);
  }
  const Ref<lazy::Engine> engine;

 private:
  Mutex mutex_;  // of what reading changes
  const std::unique_ptr<TensorFile> reader_;
};
template <>
struct HandleTraits<weft_checkpoint_reader> {
  using Object = ReaderObject;
  static constexpr HandleType kType = HandleType::kReader;
  static const ForkGuard* ForkOf(const ReaderObject& object) { return &object.engine->services().fork(); }
};

namespace {

// The bytes of a tree's tensors as they were when the save began: aliases do not see later assignments.
class Values final : public TensorSource {
 public:
  static absl::Status CheckEngine(const TensorTree& tree, const lazy::Engine& engine) {
    for (size_t i = 0; i < tree.values.size(); ++i) {
      if (&tree.values[i]->engine() == &engine) continue;
      return UserError("tensor '", tree.tree.PathOf(tree.tree.tensors()[i].node),
                       "' of the tree belongs to another context");
    }
    return absl::OkStatus();
  }
  absl::Status Take(const TensorTree& tree, std::span<const uint32_t> leaves) {
    for (const uint32_t leaf : leaves) {
      lazy::Tensor* value = tree.values[leaf].get();
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> alias, value->engine().Alias(value));
      values_.push_back(std::move(alias));
    }
    return absl::OkStatus();
  }
  // Computes what is pending, all at once.
  absl::Status Evaluate(lazy::Engine& engine) {
    std::vector<lazy::Tensor*> list;
    for (const Ref<lazy::Tensor>& value : values_) list.push_back(value.get());
    if (list.empty()) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(computed_, engine.Eval(list));
    return absl::OkStatus();
  }
  // For a thread of the library's: whoever cancels means calls of their own, not a save in the background.
  absl::Status Wait() const { return computed_ ? computed_->Wait() : absl::OkStatus(); }
  absl::Status Read(uint32_t tensor, uint64_t offset, std::span<std::byte> out) override {
    lazy::Tensor* t = values_[tensor].get();
    if (BitsOf(t->dtype()) < 8) return ReadPacked(*t, offset, out);
    return t->engine().ReadHeld(t, static_cast<int64_t>(offset), out);
  }

 private:
  // Files hold sub-byte elements packed, tensors one a byte.
  static absl::Status ReadPacked(lazy::Tensor& t, uint64_t offset, std::span<std::byte> out) {
    const int64_t each = 8 / BitsOf(t.dtype()), first = static_cast<int64_t>(offset) * each;
    const int64_t count = std::min(static_cast<int64_t>(out.size()) * each, CountOf(t.dims()) - first);
    HostTensor elements(t.dtype(), {count});
    WEFT_RETURN_IF_ERROR(t.engine().ReadBytes(&t, first, elements.mutable_bytes()));
    Pack(t.dtype(), elements.bytes(), out);
    return absl::OkStatus();
  }

  std::vector<Ref<lazy::Tensor>> values_;
  Ref<Event> computed_;
};

absl::StatusOr<SaveOptions> ReadSaveOptions(const weft_checkpoint_options* options) {
  weft_checkpoint_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_checkpoint_options", &o));
  SaveOptions save;
  if (o.durable != 0 && o.durable != -1)
    return UserError("weft_checkpoint_options.durable is ", o.durable, "; it is 0 or -1");
  save.durability = o.durable == 0 ? Durability::kPower : Durability::kProcess;
  save.step = o.step;
  save.producer = absl::StrCat("weft ", weft_release_version());
  if (o.metadata_count > 0 && o.metadata == nullptr) return NullArgument("weft_checkpoint_options.metadata");
  WEFT_RETURN_IF_ERROR(CheckedLength("weft_checkpoint_options.metadata", o.metadata_count, kMostEntries));
  for (uint64_t i = 0; i < o.metadata_count; ++i) {
    const weft_setting& m = o.metadata[i];
    WEFT_ASSIGN_OR_RETURN(std::string_view name, Text(m.name, m.name_length, "metadata[].name"));
    WEFT_ASSIGN_OR_RETURN(std::string_view value, Text(m.value, m.value_length, "metadata[].value"));
    save.user.emplace_back(name, value);
  }
  return save;
}

// The options of a file in another format than a checkpoint.
struct Foreign {
  FileFormat format = FileFormat::kWeft;
  Tied tied = Tied::kRefuse;
};
absl::StatusOr<Foreign> ReadForeign(const weft_checkpoint_options* options) {
  weft_checkpoint_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_checkpoint_options", &o));
  if (static_cast<uint32_t>(o.format) > static_cast<uint32_t>(FileFormat::kGguf)) {
    return UserError("weft_checkpoint_options.format is ", static_cast<uint32_t>(o.format),
                     ", which no weft_file_format is");
  }
  if (static_cast<uint32_t>(o.tied) > static_cast<uint32_t>(Tied::kOnce)) {
    return UserError("weft_checkpoint_options.tied is ", static_cast<uint32_t>(o.tied), ", which no weft_tied is");
  }
  return Foreign{static_cast<FileFormat>(o.format), static_cast<Tied>(o.tied)};
}

// A save that has been called for: where, what, and its place in the line.
struct Save {
  FilePlace place;
  Tree tree;
  Values values;
  SaveOptions options;
  SaveTurn turn;
  FileFormat format = FileFormat::kWeft;
  FlatTree flat;  // of other formats

  absl::Status Run(const SaveTurn::Look& look) {
    WEFT_RETURN_IF_ERROR(turn.Begin(look));
    if (format != FileFormat::kWeft) return SaveForeign(format, std::move(place), flat, values, options);
    return SaveCheckpoint(std::move(place), tree, values, options);
  }
};

absl::StatusOr<Ref<ReaderObject>> OpenReader(Context& context, const char* path, size_t length) {
  WEFT_ASSIGN_OR_RETURN(std::string file, Path(path, length));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<TensorFile> reader, OpenTensorFile(file));
  return MakeRef<ReaderObject>(std::move(reader), Ref<lazy::Engine>::Share(&context.engine()));
}

absl::StatusOr<uint32_t> FindTensor(const ReaderObject& object, const char* path, size_t length) {
  WEFT_ASSIGN_OR_RETURN(std::string_view name, Text(path, length, "path"));
  const std::optional<uint32_t> id = object.reader().Find(name);
  if (id) return *id;
  std::vector<std::string_view> names;
  const uint32_t count = object.reader().tensor_count() <= kMostGuessed ? object.reader().tensor_count() : 0;
  for (uint32_t i = 0; i < count; ++i) names.push_back(object.reader().tensor(i).name);
  return UserErrorOf(absl::StatusCode::kNotFound, "the checkpoint has no tensor '", name, "'",
                     AtTheEnd(DidYouMean(name, names)));
}

// RESOURCE_EXHAUSTED where the machine has no memory for a tensor of the file, before it is asked for.
absl::Status CheckMemory(const FileTensor& record, DType dtype, uint64_t bytes) {
  if (bytes <= uint64_t{INT64_MAX} && MachineHas(static_cast<int64_t>(bytes))) return absl::OkStatus();
  return NoLargeMemory(
      absl::StrCat("tensor '", record.name, "' of ", NameOf(dtype), DimsToString(record.dims), ": ", bytes, " bytes"));
}

absl::StatusOr<Ref<lazy::Tensor>> LoadTensor(ReaderObject& object, uint32_t id, const lazy::Where& device) {
  const FileTensor record = object.reader().tensor(id);
  WEFT_RETURN_IF_ERROR(CheckedDType(static_cast<uint32_t>(record.dtype)).status());
  WEFT_RETURN_IF_ERROR(CheckMemory(record, record.dtype, record.bytes));
  std::unique_ptr<std::byte[]> bytes(new std::byte[record.bytes]);
  const std::span<std::byte> span(bytes.get(), record.bytes);
  WEFT_RETURN_IF_ERROR(object.ReadTensor(id, span));
  if (record.logical != record.dtype) {  // a mode's
    WEFT_ASSIGN_OR_RETURN(const int64_t wanted, CheckedBytes(record.logical, record.dims.data(), record.dims.size()));
    WEFT_RETURN_IF_ERROR(CheckMemory(record, record.logical, static_cast<uint64_t>(wanted)));
    std::vector<std::byte, LargeStdAllocator<std::byte>> seen(static_cast<size_t>(wanted));
    ConvertHeld(record.dtype, span, record.logical, seen);
    return object.engine->FromHost(device, record.logical, Dims(record.dims.begin(), record.dims.end()), seen);
  }
  if (BitsOf(record.dtype) >= 8)
    return object.engine->FromHost(device, record.dtype, Dims(record.dims.begin(), record.dims.end()), span);
  HostTensor elements(record.dtype, Dims(record.dims.begin(), record.dims.end()));
  Unpack(record.dtype, span, elements.mutable_bytes());
  return object.engine->FromHost(device, record.dtype, Dims(record.dims.begin(), record.dims.end()), elements.bytes());
}

// As the caller says: bytes of no type as a type of theirs, or the bytes as they lie in the file.
absl::StatusOr<Ref<lazy::Tensor>> LoadTensorAs(ReaderObject& object, uint32_t id, DType dtype,
                                               const lazy::Where& device) {
  const FileTensor record = object.reader().tensor(id);
  if (object.reader().format() == FileFormat::kWeft) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "tensor '", record.name, "' of a Weft checkpoint is ",
                       NameOf(record.dtype), " and nothing else");
  }
  const bool bare = !record.loadable && record.encoding.ends_with("V1");
  if (dtype != DType::kU8 && (!bare || BytesOf(dtype) != 1 || dtype == DType::kBool)) {
    return UserError("tensor '", record.name, "' (", record.encoding.empty() ? NameOf(record.dtype) : record.encoding,
                     ") cannot be loaded as ", NameOf(dtype),
                     bare ? "; an element has one byte"
                          : "; weft_checkpoint_reader_load gives its values, "
                            "and WEFT_U8 its bytes");
  }
  WEFT_RETURN_IF_ERROR(CheckMemory(record, DType::kU8, record.file_bytes));
  std::vector<std::byte, LargeStdAllocator<std::byte>> bytes(record.file_bytes);
  WEFT_RETURN_IF_ERROR(object.ReadTensor(id, bytes, /*stored=*/true));
  if (BitsOf(dtype) < 8) Normalize(dtype, bytes);
  Dims dims = {static_cast<int64_t>(record.file_bytes)};
  if (bare) dims.assign(record.dims.begin(), record.dims.end());
  return object.engine->FromHost(device, dtype, dims, bytes);
}

// The reader's tree has the structure; the leaves are read in the order of the file.
absl::StatusOr<Ref<TreeObject>> LoadTree(ReaderObject& object, weft_device* device) {
  WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object.engine));
  TensorTree tree{.tree = object.reader().tree(), .values = {}};
  for (uint32_t id = 0; id < object.reader().tensor_count(); ++id) {
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, LoadTensor(object, id, place));
    tree.values.push_back(std::move(tensor));
  }
  return MakeRef<TreeObject>(std::move(tree));
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_checkpoint_save(weft_context* ctx, const char* path, size_t path_length, weft_tree* tree,
                                 const weft_checkpoint_options* options, weft_event** out_event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(std::string file, Path(path, path_length));
    WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> object, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(SaveOptions how, ReadSaveOptions(options));
    WEFT_ASSIGN_OR_RETURN(const Foreign foreign, ReadForeign(options));
    WEFT_ASSIGN_OR_RETURN(const TensorTree now, object->Copy());
    WEFT_RETURN_IF_ERROR(now.HasValues());
    WEFT_RETURN_IF_ERROR(Values::CheckEngine(now, context->engine()));
    auto save = std::make_shared<Save>();
    save->options = std::move(how);
    save->options.held = context->engine().options().held;
    WEFT_ASSIGN_OR_RETURN(save->place, PlaceOfCheckpoint(file));
    lazy::Services& services = context->engine().services();
    const SaveTurn::Look look = [&services, before = services.cancels()] { return services.Interrupted(before); };
    // Before the values are taken hold of: what is held cannot be overwritten in place.
    WEFT_ASSIGN_OR_RETURN(save->turn, SaveTurn::Enter(save->place, look));
    std::vector<uint32_t> leaves;
    WEFT_ASSIGN_OR_RETURN(std::tie(save->tree, leaves), now.Tied());
    save->format = foreign.format;
    if (foreign.format != FileFormat::kWeft) {
      WEFT_ASSIGN_OR_RETURN(save->flat, FlattenFor(foreign.format, save->tree, save->options.held, foreign.tied));
    }
    WEFT_RETURN_IF_ERROR(save->values.Take(now, leaves));
    WEFT_RETURN_IF_ERROR(save->values.Evaluate(context->engine()));
    if (out_event == nullptr) return save->Run(look);
    // The handle first: once the save is under way, nothing of the call may fail.
    auto done = MakeRef<Event>();
    weft_event* event = nullptr;
    WEFT_RETURN_IF_ERROR(MakeEvent(*context, done, &event));
    absl::Cleanup release = [event] { weft_event_release(event); };
    WEFT_RETURN_IF_ERROR(context->InBackground([save = std::move(save), done]() mutable {
      absl::Status status;
      try {
        status = save->values.Wait();
        if (status.ok()) status = save->Run(nullptr);
      } catch (const std::exception&) {
        status = absl::Status(absl::StatusCode::kResourceExhausted, "");  // a text would need memory
      }
      save.reset();  // what the event says has ended holds nothing any more
      done->Complete(std::move(status));
    }));
    std::move(release).Cancel();
    *out_event = event;
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_load(weft_context* ctx, const char* path, size_t path_length, weft_device* device,
                                 weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_RETURN_IF_ERROR(DeviceOr(device, context->engine()).status());  // before a long file is read for nothing
    WEFT_ASSIGN_OR_RETURN(Ref<ReaderObject> reader, OpenReader(*context, path, path_length));
    WEFT_ASSIGN_OR_RETURN(Ref<TreeObject> tree, LoadTree(*reader, device));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(std::move(tree)));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_open(weft_context* ctx, const char* path, size_t path_length,
                                        weft_checkpoint_reader** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(Ref<ReaderObject> reader, OpenReader(*context, path, path_length));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_checkpoint_reader>(std::move(reader)));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_count(weft_checkpoint_reader* reader, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    *out_count = object->reader().tensor_count();
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_entry(weft_checkpoint_reader* reader, size_t index,
                                         weft_checkpoint_entry* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    if (index >= object->reader().tensor_count()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "entry ", index, " of a checkpoint with ",
                         object->reader().tensor_count(), " tensors");
    }
    const FileTensor record = object->reader().tensor(static_cast<uint32_t>(index));
    weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
    entry.path = record.name.data();
    entry.path_length = record.name.size();
    entry.dtype = static_cast<weft_dtype>(record.logical);
    entry.stored = static_cast<weft_dtype>(record.dtype);
    entry.rank = static_cast<uint32_t>(record.dims.size());
    std::copy_n(record.dims.begin(), std::min(record.dims.size(), std::size(entry.dims)), entry.dims);
    entry.size_bytes = record.file_bytes;
    entry.encoding = record.encoding.empty() ? "" : record.encoding.data();
    entry.encoding_length = record.encoding.size();
    entry.loadable = record.loadable ? 1 : 0;
    return WriteStruct(&entry, sizeof(entry), "weft_checkpoint_entry", out);
  });
}

weft_error* weft_checkpoint_reader_load(weft_checkpoint_reader* reader, const char* path, size_t path_length,
                                        weft_device* device, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, FindTensor(*object, path, path_length));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object->engine));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, LoadTensor(*object, id, place));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_checkpoint_reader_load_as(weft_checkpoint_reader* reader, const char* path, size_t path_length,
                                           weft_dtype dtype, weft_device* device, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    WEFT_ASSIGN_OR_RETURN(const DType wanted, CheckedDType(static_cast<uint32_t>(dtype)));
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, FindTensor(*object, path, path_length));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object->engine));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, LoadTensorAs(*object, id, wanted, place));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_checkpoint_reader_metadata(weft_checkpoint_reader* reader, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    TensorTree tree;
    WEFT_ASSIGN_OR_RETURN(tree.tree, object->reader().Metadata());
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_tree(weft_checkpoint_reader* reader, weft_device* device, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    WEFT_ASSIGN_OR_RETURN(Ref<TreeObject> tree, LoadTree(*object, device));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(std::move(tree)));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_info(weft_checkpoint_reader* reader, weft_checkpoint_info* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const HeaderRecord& header = object->reader().header();
    weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
    info.step = header.step;
    info.created_unix_ns = header.created_unix_ns;
    info.file_bytes = object->reader().file_bytes();
    info.tensor_bytes = object->reader().tensor_bytes();
    info.tensors = object->reader().tensor_count();
    info.producer = header.producer.c_str();
    info.producer_length = header.producer.size();
    info.format = static_cast<weft_file_format>(object->reader().format());
    return WriteStruct(&info, sizeof(info), "weft_checkpoint_info", out);
  });
}

weft_error* weft_checkpoint_reader_find(weft_checkpoint_reader* reader, const char* path, size_t path_length,
                                        size_t* out_index) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_index);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    WEFT_ASSIGN_OR_RETURN(*out_index, FindTensor(*object, path, path_length));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_structure(weft_checkpoint_reader* reader, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    TensorTree tree{.tree = object->reader().tree(), .values = {}};
    tree.values.resize(tree.tree.tensors().size());
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

void weft_checkpoint_reader_retain(weft_checkpoint_reader* reader) noexcept {
  RetainHandle(reader, HandleType::kReader);
}
void weft_checkpoint_reader_release(weft_checkpoint_reader* reader) noexcept {
  ReleaseHandle(reader, HandleType::kReader);
}

}  // extern "C"
