// Checkpoints to and from functions and descriptors: what this thread wrote last is what it reads.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "tests/fuzz/abi_fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

struct Written {
  char bytes[1 << 16];
  size_t size;
};
thread_local Written t_written;

weft_error* Take(void*, const void* data, size_t size) {
  Written& w = t_written;
  if (size > sizeof(w.bytes) - w.size) return weft_error_new(WEFT_RESOURCE_EXHAUSTED, "full", 4);
  std::memcpy(w.bytes + w.size, data, size);
  w.size += size;
  return nullptr;
}
// On whichever thread, and for as long as anything may be read: user_data is a copy of what the caller had written.
weft_error* Give(void* user_data, uint64_t offset, void* data, size_t size, size_t* out_size) {
  const auto& bytes = *static_cast<const std::string*>(user_data);
  *out_size = offset < bytes.size() ? std::min<size_t>(size, bytes.size() - offset) : 0;
  if (*out_size > 0) std::memcpy(data, bytes.data() + offset, *out_size);
  return nullptr;
}
void EndCopy(void* user_data) {
  delete static_cast<std::string*>(user_data);
  g_ended.fetch_add(1);
}
weft_error* Refuse(void*, uint64_t, void*, size_t, size_t*) { return weft_error_new(WEFT_DATA_LOSS, "none", 4); }

// Descriptors that neither wait nor are ours: an empty file, none, one that was never open.
int DrawnDescriptor(Fuzz& f, int flags) {
  static const int read = open("/dev/null", O_RDONLY | O_CLOEXEC), write = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (f.Wrong()) return f.Of<int>({-1, 1 << 20, INT32_MIN, INT32_MAX});
  return (flags == O_RDONLY) != f.Wrong() ? read : write;
}

// Now and then a byte of it is another than was written.
weft_source* DrawnSource(Fuzz& f) {
  auto* const source = f.Options<weft_source>();
  if (source == nullptr) return nullptr;
  const Written& w = t_written;
  // A struct that is too short to name a release has none, and nothing to read.
  const bool told = source->struct_size >= sizeof(*source) && source->struct_size <= 65536;
  auto* const copy = told ? new std::string(w.bytes, w.size) : nullptr;
  if (told) g_owed.fetch_add(1);
  source->read = !told || f.OneIn(8) ? nullptr : f.OneIn(8) ? Refuse : Give;
  source->fd = DrawnDescriptor(f, O_RDONLY);
  source->size = f.Wrong() ? static_cast<uint64_t>(f.Integer()) : w.size;
  source->user_data = copy;
  source->release = told ? EndCopy : nullptr;
  if (told && w.size > 0 && f.OneIn(8)) (*copy)[static_cast<size_t>(f.Roll(static_cast<int>(w.size)))] ^= 1;
  return source;
}

}  // namespace

void Call_weft_checkpoint_save_to(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  auto* const sink = f.Options<weft_sink>();
  if (sink != nullptr) {
    sink->write = f.OneIn(8) ? nullptr : Take;
    sink->fd = DrawnDescriptor(f, O_WRONLY);
    sink->user_data = nullptr;
  }
  weft_tree* const tree = f.Handle<weft_tree>(false);
  auto* const options = f.Options<weft_checkpoint_options>();
  if (options != nullptr) options->step = f.Integer();
  t_written.size = 0;
  f.Enter();
  f.Leave(weft_checkpoint_save_to(ctx, sink, tree, options));
}

void Call_weft_checkpoint_load_from(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_source* const source = DrawnSource(f);
  weft_device* const device = f.Handle<weft_device>(true);
  weft_tree** const out = f.Out<weft_tree*>(false);
  f.Enter();
  if (f.Leave(weft_checkpoint_load_from(ctx, source, device, out))) f.Keep(out);
}

void Call_weft_checkpoint_reader_open_from(Fuzz& f) {
  weft_context* const ctx = f.Handle<weft_context>(false);
  weft_source* const source = DrawnSource(f);
  auto* const options = f.Options<weft_open_options>();
  weft_checkpoint_reader** const out = f.Out<weft_checkpoint_reader*>(false);
  f.Enter();
  if (f.Leave(weft_checkpoint_reader_open_from(ctx, source, options, out))) f.Keep(out);
}

}  // namespace weft::fuzz
