// Boxes of tensors of a file: the rows that are touched are read, and nothing else.
#include <algorithm>
#include <cstring>

#include "src/c_api/checkpoint_reader.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/held_types.h"
#include "src/runtime/machine_memory.h"
#include "src/runtime/narrow.h"

namespace weft::c_api {
namespace {

constexpr uint64_t kWindow = 1 << 20;  // read at once where runs are short

absl::Status CheckBox(const FileTensor& record, std::span<const int64_t> starts, std::span<const int64_t> sizes) {
  if (starts.size() != record.dims.size()) {
    return UserError("a box of ", starts.size(), " dimensions of tensor '", record.name, "' ", NameOf(record.logical),
                     DimsToString(record.dims), ", which has ", record.dims.size());
  }
  for (size_t d = 0; d < starts.size(); ++d) {
    if (starts[d] >= 0 && sizes[d] >= 0 && starts[d] <= record.dims[d] && sizes[d] <= record.dims[d] - starts[d])
      continue;
    return UserErrorOf(absl::StatusCode::kOutOfRange, "a box from ", starts[d], " of ", sizes[d], " in dimension ", d,
                       " of tensor '", record.name, "' ", NameOf(record.logical), DimsToString(record.dims));
  }
  return absl::OkStatus();
}

// The runs of a box in a row-major array, in order: `use(offset, count)` in elements.
template <typename Use>
absl::Status ForEachRun(std::span<const int64_t> dims, std::span<const int64_t> starts, std::span<const int64_t> sizes,
                        Use&& use) {
  if (CountOf(sizes) == 0) return absl::OkStatus();
  size_t whole = dims.size();  // dimensions from here on are taken whole
  int64_t run = 1;
  while (whole > 0 && sizes[whole - 1] == dims[whole - 1]) run *= dims[--whole];
  if (whole > 0) run *= sizes[--whole];
  const Dims strides = StridesOf(dims);
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) offset += starts[d] * strides[d];
  std::vector<int64_t> index(whole);
  for (;;) {
    WEFT_RETURN_IF_ERROR(use(offset, run));
    size_t d = whole;
    for (; d-- > 0;) {
      offset += strides[d];
      if (++index[d] < sizes[d]) break;
      offset -= index[d] * strides[d];
      index[d] = 0;
    }
    if (d == static_cast<size_t>(-1)) return absl::OkStatus();
  }
}

}  // namespace

absl::Status ReaderObject::ReadBox(uint32_t id, const FileTensor& record, std::span<const int64_t> starts,
                                   std::span<const int64_t> sizes, std::span<std::byte> out) {
  const auto width = static_cast<uint64_t>(BytesOf(record.dtype));
  std::vector<std::byte> window;
  uint64_t window_at = 0, done = 0;
  engine->services().StartsWork();
  MutexLock lock(mutex_);
  return ForEachRun(record.dims, starts, sizes, [&](int64_t offset, int64_t count) -> absl::Status {
    const uint64_t at = static_cast<uint64_t>(offset) * width, n = static_cast<uint64_t>(count) * width;
    const std::span<std::byte> to = out.subspan(done, n);
    done += n;
    if (n >= kWindow / 16) return reader_->ReadPart(id, at, to);
    if (at < window_at || at + n > window_at + window.size()) {
      window.resize(std::min(kWindow, record.bytes - at));
      window_at = at;
      WEFT_RETURN_IF_ERROR(reader_->ReadPart(id, at, window));
    }
    std::memcpy(to.data(), window.data() + (at - window_at), n);
    return absl::OkStatus();
  });
}

absl::Status ReaderObject::ReadBoxValues(uint32_t id, const FileTensor& record, std::span<const int64_t> starts,
                                         std::span<const int64_t> sizes, std::span<std::byte> out) {
  using Bytes = std::vector<std::byte, LargeStdAllocator<std::byte>>;
  if (std::ranges::equal(sizes, record.dims)) return ReadValues(id, record, out);
  if (BitsOf(record.dtype) < 8) {  // several elements share a byte: the whole is read
    Bytes all(static_cast<size_t>(CountOf(record.dims)));
    WEFT_RETURN_IF_ERROR(ReadValues(id, record, all));
    size_t done = 0;
    return ForEachRun(record.dims, starts, sizes, [&](int64_t offset, int64_t count) {
      std::memcpy(out.data() + done, all.data() + offset, static_cast<size_t>(count));
      done += static_cast<size_t>(count);
      return absl::OkStatus();
    });
  }
  if (record.logical == record.dtype) return ReadBox(id, record, starts, sizes, out);
  Bytes stored(static_cast<size_t>(CountOf(sizes) * BytesOf(record.dtype)));
  WEFT_RETURN_IF_ERROR(ReadBox(id, record, starts, sizes, stored));
  ConvertHeld(record.dtype, stored, record.logical, out);
  return absl::OkStatus();
}

absl::StatusOr<Ref<lazy::Tensor>> ReaderObject::LoadBox(uint32_t id, std::span<const int64_t> starts,
                                                        std::span<const int64_t> sizes, const lazy::Where& device) {
  WEFT_ASSIGN_OR_RETURN(const FileTensor record, Tensor(id));
  WEFT_RETURN_IF_ERROR(CheckedDType(static_cast<uint32_t>(record.dtype)).status());
  WEFT_RETURN_IF_ERROR(CheckBox(record, starts, sizes));
  if (!record.loadable) return Load(id, device);  // which says why it cannot be
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(record.logical, sizes.data(), sizes.size()));
  WEFT_RETURN_IF_ERROR(CheckBudget(static_cast<uint64_t>(bytes), absl::StrCat("a box of tensor '", record.name, "'")));
  if (!MachineHas(bytes)) {
    return NoLargeMemory(absl::StrCat("a box ", NameOf(record.logical), DimsToString(sizes), " of tensor '",
                                      record.name, "': ", bytes, " bytes"));
  }
  return engine->FromFilled(device, ir::Type::Tensor(record.logical, Dims(sizes.begin(), sizes.end())),
                            [&](std::span<std::byte> out) { return ReadBoxValues(id, record, starts, sizes, out); });
}

absl::StatusOr<Ref<lazy::Tensor>> ReaderObject::LoadOnMesh(uint32_t id, const lazy::DeviceMesh& mesh,
                                                           std::string_view spec) {
  WEFT_ASSIGN_OR_RETURN(const FileTensor record, Tensor(id));
  WEFT_RETURN_IF_ERROR(CheckedDType(static_cast<uint32_t>(record.dtype)).status());
  if (!record.loadable) return Load(id, lazy::Where(&mesh));  // which says why it cannot be
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(record.logical, record.dims.data(), record.dims.size()));
  WEFT_RETURN_IF_ERROR(CheckBudget(static_cast<uint64_t>(bytes), absl::StrCat("tensor '", record.name, "'")));
  const ir::Type type = ir::Type::Tensor(record.logical, Dims(record.dims.begin(), record.dims.end()));
  return engine->FromBoxes(lazy::Where(&mesh), type, spec, [&](const ir::Box& box, std::span<std::byte> out) {
    return ReadBoxValues(id, record, box.starts, box.sizes, out);
  });
}

absl::StatusOr<Ref<lazy::Tensor>> ReaderObject::LoadRange(uint32_t id, int64_t first, int64_t count,
                                                          const lazy::Where& device) {
  WEFT_ASSIGN_OR_RETURN(const FileTensor record, Tensor(id));
  const int64_t all = CountOf(record.dims), there = std::clamp<int64_t>(all - first, 0, count);
  if (!record.loadable || BitsOf(record.dtype) < 8) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "tensor '", record.name, "' of ", NameOf(record.dtype),
                       " is not read in ranges");
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, CheckedBytes(record.logical, &count, 1));
  WEFT_RETURN_IF_ERROR(
      CheckBudget(static_cast<uint64_t>(bytes), absl::StrCat("a range of tensor '", record.name, "'")));
  const int64_t starts[] = {std::min(first, all)}, sizes[] = {there}, flat[] = {all};
  FileTensor line = record;
  line.dims = flat;
  return engine->FromFilled(
      device, ir::Type::Tensor(record.logical, {count}), [&](std::span<std::byte> out) -> absl::Status {
        const auto used = static_cast<size_t>(there * BytesOf(record.logical));
        std::ranges::fill(out.subspan(used), std::byte{0});
        if (record.logical == record.dtype) return ReadBox(id, line, starts, sizes, out.first(used));
        std::vector<std::byte, LargeStdAllocator<std::byte>> stored(static_cast<size_t>(there * BytesOf(record.dtype)));
        WEFT_RETURN_IF_ERROR(ReadBox(id, line, starts, sizes, stored));
        ConvertHeld(record.dtype, stored, record.logical, out.first(used));
        return absl::OkStatus();
      });
}

}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_checkpoint_reader_load_sharded(weft_checkpoint_reader* reader, const char* path,
                                                           size_t path_length, weft_mesh* mesh, const char* spec,
                                                           size_t spec_length, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(const uint32_t id, object->Find(path, path_length));
    WEFT_ASSIGN_OR_RETURN(Pin<MeshObject> onto, Get(mesh, "mesh"));
    if (onto->engine.get() != object->engine.get()) {
      return UserError(onto->mesh->name(), " belongs to another context than the reader");
    }
    WEFT_ASSIGN_OR_RETURN(const std::string_view words, OptionalText(spec, spec_length, "spec"));
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, object->LoadOnMesh(id, *onto->mesh, words));
    return MakeTensor(std::move(tensor), out);
  });
}
