// weft_api_json: include/c_api/weft_api.json, as it was when the library was built. The library has it compressed, a tenth of
// its size; the first call unpacks it. Threads that come meanwhile unpack it for themselves, and one text is kept: nobody waits for
// another thread, of which a forked child has none. Where there is no memory, one that the process has from its start is used.
#include <description_size.h>  // made by scripts/cmake/description.py
#include <sched.h>
#include <sys/mman.h>
#include <zlib.h>

#include <atomic>
#include <cstddef>

#include "weft.h"

asm(".pushsection .rodata, \"a\", @progbits\n"
    ".globl weft_description_begin\n"
    ".hidden weft_description_begin\n"
    ".globl weft_description_end\n"
    ".hidden weft_description_end\n"
    "weft_description_begin:\n"
    ".incbin \"" WEFT_DESCRIPTION
    "\"\n"
    "weft_description_end:\n"
    ".popsection\n");

extern "C" {
extern const unsigned char weft_description_begin[];
extern const unsigned char weft_description_end[];
}

namespace {

// The memory that inflate asks for: about 10 KB of state, and up to 32 KB of window.
struct Workspace {
  alignas(std::max_align_t) unsigned char bytes[64 << 10];
  size_t used;
};
// A text, and the space to make it in. All zeros before.
struct Unpacked {
  Workspace workspace;
  char text[WEFT_DESCRIPTION_SIZE + 1];  // and a NUL
  size_t length;
};
constinit Unpacked g_last_resort = {};
constinit std::atomic<bool> g_last_resort_taken{false};
constinit std::atomic<const Unpacked*> g_unpacked{nullptr};

void* Take(void* workspace, unsigned count, unsigned size) {
  auto& space = *static_cast<Workspace*>(workspace);
  constexpr size_t kAlign = alignof(std::max_align_t);
  const size_t bytes = (size_t{count} * size + kAlign - 1) / kAlign * kAlign;
  if (bytes > sizeof(space.bytes) - space.used) return nullptr;
  space.used += bytes;
  return space.bytes + (space.used - bytes);
}
void GiveBack(void*, void*) {}

void Unpack(Unpacked* to) {
  z_stream stream = {};
  stream.zalloc = Take;
  stream.zfree = GiveBack;
  stream.opaque = &to->workspace;
  stream.next_in = const_cast<unsigned char*>(weft_description_begin);
  stream.avail_in = static_cast<unsigned>(weft_description_end - weft_description_begin);
  stream.next_out = reinterpret_cast<unsigned char*>(to->text);
  stream.avail_out = WEFT_DESCRIPTION_SIZE;
  if (inflateInit(&stream) != Z_OK) return;
  (void)inflate(&stream, Z_FINISH);
  (void)inflateEnd(&stream);
  to->length = stream.total_out;
}

const Unpacked* Description() {
  if (const Unpacked* known = g_unpacked.load(std::memory_order_acquire)) return known;
  void* const memory = mmap(nullptr, sizeof(Unpacked), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* own = memory != MAP_FAILED ? static_cast<Unpacked*>(memory) : nullptr;
  if (own == nullptr && !g_last_resort_taken.exchange(true)) own = &g_last_resort;
  const Unpacked* kept = nullptr;
  if (own == nullptr) {
    // Another thread is about to finish.
    while ((kept = g_unpacked.load(std::memory_order_acquire)) == nullptr) sched_yield();
    return kept;
  }
  Unpack(own);
  if (g_unpacked.compare_exchange_strong(kept, own, std::memory_order_acq_rel)) return own;
  if (own != &g_last_resort) munmap(own, sizeof(Unpacked));
  return kept;
}

}  // namespace

extern "C" const char* weft_api_json(size_t* out_length) noexcept {
  const Unpacked* const description = Description();
  if (out_length != nullptr) *out_length = description->length;
  return description->text;
}
