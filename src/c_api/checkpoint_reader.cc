// weft_checkpoint_reader_*: files of tensors, whoever's format they have.
#include "src/c_api/checkpoint_reader.h"

#include <algorithm>
#include <numeric>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/guess.h"
#include "src/c_api/options.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/held_types.h"
#include "src/runtime/host_tensor.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/narrow.h"

namespace weft::c_api {
namespace {

static_assert(static_cast<uint32_t>(Verify::kUse) == WEFT_VERIFY_USE &&
              static_cast<uint32_t>(Verify::kAll) == WEFT_VERIFY_ALL &&
              static_cast<uint32_t>(Verify::kOff) == WEFT_VERIFY_OFF);

// RESOURCE_EXHAUSTED where the machine has no memory for a tensor of the file, before it is asked for.
absl::Status CheckMemory(const FileTensor& record, DType dtype, uint64_t bytes) {
  if (bytes <= uint64_t{INT64_MAX} && MachineHas(static_cast<int64_t>(bytes))) return absl::OkStatus();
  return NoLargeMemory(
      absl::StrCat("tensor '", record.name, "' of ", NameOf(dtype), DimsToString(record.dims), ": ", bytes, " bytes"));
}

// In the order of the file, whatever the order of the call.
absl::StatusOr<std::vector<Ref<lazy::Tensor>>> LoadMany(ReaderObject& object, std::span<const uint64_t> indices,
                                                        const lazy::Where& place) {
  uint64_t bytes = 0;
  for (const uint64_t index : indices) {
    if (index >= object.tensor_count()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "entry ", index, " of a checkpoint with ",
                         object.tensor_count(), " tensors");
    }
    WEFT_ASSIGN_OR_RETURN(const FileTensor record, object.Tensor(static_cast<uint32_t>(index)));
    bytes += record.bytes;
  }
  if (!object.maps()) WEFT_RETURN_IF_ERROR(object.CheckBudget(bytes, absl::StrCat(indices.size(), " tensors")));
  std::vector<size_t> order(indices.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return indices[a] < indices[b]; });
  std::vector<Ref<lazy::Tensor>> tensors(indices.size());
  for (const size_t i : order) {
    WEFT_ASSIGN_OR_RETURN(tensors[i], object.Load(static_cast<uint32_t>(indices[i]), place));
  }
  return tensors;
}

}  // namespace

absl::StatusOr<ReaderOptions> ReadOpenOptions(const weft_open_options* options) {
  weft_open_options o;
  WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_open_options", &o));
  const auto mode = static_cast<uint32_t>(o.mode), verify = static_cast<uint32_t>(o.verify);
  if (mode > WEFT_OPEN_AUTO) return UserError("weft_open_options.mode is ", mode, ", which no weft_open_mode is");
  if (verify > WEFT_VERIFY_OFF) return UserError("weft_open_options.verify is ", verify, ", which no weft_verify is");
  return ReaderOptions{static_cast<Verify>(verify), o.mode, o.memory_budget};
}

void ToValues(DType stored, DType logical, std::span<const std::byte> bytes, std::span<std::byte> out) {
  if (BitsOf(stored) < 8) {
    Unpack(stored, bytes, out);
  } else if (logical != stored) {
    ConvertHeld(stored, bytes, logical, out);  // a mode's
  } else {
    std::ranges::copy(bytes, out.begin());
  }
}

absl::StatusOr<Ref<ReaderObject>> ReaderObject::Open(Context& context, const char* path, size_t length,
                                                     const ReaderOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::string file, Path(path, length));
  return Open(context, file, options, nullptr);
}

absl::StatusOr<Ref<ReaderObject>> ReaderObject::Open(Context& context, const std::string& path,
                                                     const ReaderOptions& options, std::shared_ptr<FileSystem> files) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<TensorFile> reader,
                        OpenTensorFile(path, {.fs = files.get(), .verify = options.verify}));
  return MakeRef<ReaderObject>(std::move(files), std::move(reader), Ref<lazy::Engine>::Share(&context.engine()),
                               options);
}

absl::StatusOr<const Tree*> ReaderObject::WholeTree() {
  engine->services().StartsWork();  // a fork may come while it is locked
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(reader_->LoadAll());
  return &reader_->tree();
}

absl::StatusOr<FileTensor> ReaderObject::Tensor(uint32_t id) {
  engine->services().StartsWork();
  MutexLock lock(mutex_);
  if (!reader_->Knows(id)) WEFT_RETURN_IF_ERROR(reader_->LoadAll());
  return reader_->tensor(id);
}

absl::StatusOr<std::optional<uint32_t>> ReaderObject::Look(std::string_view name) {
  engine->services().StartsWork();
  MutexLock lock(mutex_);
  return reader_->Find(name);
}

absl::StatusOr<uint32_t> ReaderObject::Find(const char* path, size_t length) {
  WEFT_ASSIGN_OR_RETURN(std::string_view name, Text(path, length, "path"));
  WEFT_ASSIGN_OR_RETURN(const std::optional<uint32_t> id, Look(name));
  if (id) return *id;
  std::vector<std::string_view> names;
  if (tensor_count() <= kMostGuessed) {
    WEFT_RETURN_IF_ERROR(WholeTree().status());
    for (uint32_t i = 0; i < tensor_count(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const FileTensor tensor, Tensor(i));
      names.push_back(tensor.name);
    }
  }
  return UserErrorOf(absl::StatusCode::kNotFound, "the checkpoint has no tensor '", name, "'",
                     AtTheEnd(DidYouMean(name, names)));
}

absl::Status ReaderObject::CheckBudget(uint64_t bytes, std::string_view what) const {
  if (options_.memory_budget == 0 || bytes <= options_.memory_budget) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kResourceExhausted, what, ": ", bytes,
                     " bytes, and weft_open_options.memory_budget allows ", options_.memory_budget);
}

absl::Status ReaderObject::Read(uint32_t id, std::span<std::byte> out) {
  engine->services().StartsWork();
  MutexLock lock(mutex_);
  return reader_->ReadTensor(id, out);
}

absl::StatusOr<Ref<FileMap>> ReaderObject::MapOf(const TensorFile::Lying& lying) {
  const auto [at, is_new] = maps_.try_emplace(lying.file);
  if (!is_new) return at->second;
  const bool must = options_.mode == WEFT_OPEN_MAP;
  if (!must && !FileMap::IsLocal(*lying.file)) return Ref<FileMap>();
  absl::StatusOr<Ref<FileMap>> map = FileMap::Make(*lying.file, lying.file_bytes);
  if (map.ok()) {
    at->second = *std::move(map);
    return at->second;
  }
  maps_.erase(at);
  if (must || absl::IsDataLoss(map.status())) return map.status();
  return Ref<FileMap>();
}

absl::StatusOr<Ref<lazy::Tensor>> ReaderObject::Map(uint32_t id, const FileTensor& record, const lazy::Where& device) {
  if (options_.mode == WEFT_OPEN_COPY || device.frame != nullptr || record.bytes == 0 || BitsOf(record.dtype) < 8 ||
      record.logical != record.dtype) {
    return Ref<lazy::Tensor>();
  }
  Ref<FileMap> map;
  std::byte* data = nullptr;
  {
    engine->services().StartsWork();
    MutexLock lock(mutex_);
    const std::optional<TensorFile::Lying> lying = reader_->LyingAt(id);
    if (!lying || lying->offset % static_cast<uint64_t>(BytesOf(record.dtype)) != 0) return Ref<lazy::Tensor>();
    WEFT_ASSIGN_OR_RETURN(map, MapOf(*lying));
    if (map == nullptr) return Ref<lazy::Tensor>();
    data = map->bytes().data() + lying->offset;
    WEFT_RETURN_IF_ERROR(reader_->CheckBytes(id, {data, static_cast<size_t>(record.bytes)}));
  }
  return engine->Adopt(device, record.dtype, record.dims, data, [map = std::move(map)] {});
}

absl::Status ReaderObject::ReadValues(uint32_t id, const FileTensor& record, std::span<std::byte> out) {
  if (record.logical == record.dtype && BitsOf(record.dtype) >= 8) return Read(id, out);
  std::vector<std::byte, LargeStdAllocator<std::byte>> bytes(record.bytes);
  WEFT_RETURN_IF_ERROR(Read(id, bytes));
  ToValues(record.dtype, record.logical, bytes, out);
  return absl::OkStatus();
}

absl::StatusOr<Ref<lazy::Tensor>> ReaderObject::Load(uint32_t id, const lazy::Where& device) {
  WEFT_ASSIGN_OR_RETURN(const FileTensor record, Tensor(id));
  WEFT_RETURN_IF_ERROR(CheckedDType(static_cast<uint32_t>(record.dtype)).status());
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> mapped, Map(id, record, device));
  if (mapped != nullptr) return mapped;
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(record.logical, record.dims.data(), record.dims.size()));
  WEFT_RETURN_IF_ERROR(CheckBudget(static_cast<uint64_t>(bytes), absl::StrCat("tensor '", record.name, "'")));
  WEFT_RETURN_IF_ERROR(CheckMemory(record, record.logical, static_cast<uint64_t>(bytes)));
  return engine->FromFilled(device, ir::Type::Tensor(record.logical, Dims(record.dims.begin(), record.dims.end())),
                            [&](std::span<std::byte> out) { return ReadValues(id, record, out); });
}

absl::StatusOr<Ref<lazy::Tensor>> ReaderObject::LoadAs(uint32_t id, DType dtype, const lazy::Where& device) {
  WEFT_ASSIGN_OR_RETURN(const FileTensor record, Tensor(id));
  if (format() == FileFormat::kWeft) {
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
  WEFT_RETURN_IF_ERROR(CheckBudget(record.file_bytes, absl::StrCat("tensor '", record.name, "'")));
  WEFT_RETURN_IF_ERROR(CheckMemory(record, DType::kU8, record.file_bytes));
  Dims dims = {static_cast<int64_t>(record.file_bytes)};
  if (bare) dims.assign(record.dims.begin(), record.dims.end());
  return engine->FromFilled(device, ir::Type::Tensor(dtype, dims), [&](std::span<std::byte> out) -> absl::Status {
    engine->services().StartsWork();
    MutexLock lock(mutex_);
    WEFT_RETURN_IF_ERROR(reader_->ReadStored(id, out));
    if (BitsOf(dtype) < 8) Normalize(dtype, out);
    return absl::OkStatus();
  });
}

absl::StatusOr<Ref<TreeObject>> ReaderObject::LoadTree(weft_device* device) {
  WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *engine));
  WEFT_ASSIGN_OR_RETURN(const Tree* structure, WholeTree());
  if (!maps()) {
    WEFT_RETURN_IF_ERROR(CheckBudget(reader_->tensor_bytes(), absl::StrCat(tensor_count(), " tensors")));
  }
  TensorTree tree{.tree = *structure, .values = {}};
  for (uint32_t id = 0; id < tensor_count(); ++id) {
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, Load(id, place));
    tree.values.push_back(std::move(tensor));
  }
  return MakeRef<TreeObject>(std::move(tree));
}

}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_checkpoint_reader_open(weft_context* ctx, const char* path, size_t path_length,
                                        weft_checkpoint_reader** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    const Interruptible until_cancelled = UntilCancelled(context->engine());
    WEFT_ASSIGN_OR_RETURN(Ref<ReaderObject> reader, ReaderObject::Open(*context, path, path_length, {}));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_checkpoint_reader>(std::move(reader)));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_open_with(weft_context* ctx, const char* path, size_t path_length,
                                             const weft_open_options* options, weft_checkpoint_reader** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(const ReaderOptions how, ReadOpenOptions(options));
    const Interruptible until_cancelled = UntilCancelled(context->engine());
    WEFT_ASSIGN_OR_RETURN(Ref<ReaderObject> reader, ReaderObject::Open(*context, path, path_length, how));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_checkpoint_reader>(std::move(reader)));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_count(weft_checkpoint_reader* reader, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    *out_count = object->tensor_count();
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_entry(weft_checkpoint_reader* reader, size_t index,
                                         weft_checkpoint_entry* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    if (index >= object->tensor_count()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, "entry ", index, " of a checkpoint with ",
                         object->tensor_count(), " tensors");
    }
    WEFT_ASSIGN_OR_RETURN(const FileTensor record, object->Tensor(static_cast<uint32_t>(index)));
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
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, object->Find(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object->engine));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, object->Load(id, place));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_checkpoint_reader_load_as(weft_checkpoint_reader* reader, const char* path, size_t path_length,
                                           weft_dtype dtype, weft_device* device, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(const DType wanted, CheckedDType(static_cast<uint32_t>(dtype)));
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, object->Find(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object->engine));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, object->LoadAs(id, wanted, place));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_checkpoint_reader_load_box(weft_checkpoint_reader* reader, const char* path, size_t path_length,
                                            const int64_t* starts, const int64_t* sizes, size_t rank,
                                            weft_device* device, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_RETURN_IF_ERROR(CheckedLength("rank", rank, kMaxRank));
    if (rank > 0 && (starts == nullptr || sizes == nullptr)) {
      return NullArgument(starts == nullptr ? "starts" : "sizes");
    }
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, object->Find(path, path_length));
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object->engine));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, object->LoadBox(id, {starts, rank}, {sizes, rank}, place));
    return MakeTensor(std::move(tensor), out);
  });
}

weft_error* weft_checkpoint_reader_load_many(weft_checkpoint_reader* reader, const uint64_t* indices, size_t count,
                                             weft_device* device, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_RETURN_IF_ERROR(CheckedLength("count", count, kMostEntries));
    if (count == 0) return absl::OkStatus();
    if (indices == nullptr) return NullArgument("indices");
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(const lazy::Where place, PlaceOr(device, *object->engine));
    WEFT_ASSIGN_OR_RETURN(std::vector<Ref<lazy::Tensor>> tensors, LoadMany(*object, {indices, count}, place));
    std::vector<weft_tensor*> handles(count);
    absl::Cleanup release = [&] {
      for (weft_tensor* handle : handles) weft_tensor_release(handle);
    };
    for (size_t i = 0; i < count; ++i) WEFT_RETURN_IF_ERROR(MakeTensor(std::move(tensors[i]), &handles[i]));
    std::copy(handles.begin(), handles.end(), out);
    std::move(release).Cancel();
    return absl::OkStatus();
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
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(Ref<TreeObject> tree, object->LoadTree(device));
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
    info.tensors = object->tensor_count();
    info.producer = header.producer.c_str();
    info.producer_length = header.producer.size();
    info.format = static_cast<weft_file_format>(object->reader().format());
    info.bases = header.base_names.c_str();
    info.bases_length = header.base_names.size();
    return WriteStruct(&info, sizeof(info), "weft_checkpoint_info", out);
  });
}

weft_error* weft_checkpoint_reader_find(weft_checkpoint_reader* reader, const char* path, size_t path_length,
                                        size_t* out_index) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_index);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(*out_index, object->Find(path, path_length));
    return absl::OkStatus();
  });
}

weft_error* weft_checkpoint_reader_structure(weft_checkpoint_reader* reader, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(const Tree* structure, object->WholeTree());
    TensorTree tree{.tree = *structure, .values = {}};
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
