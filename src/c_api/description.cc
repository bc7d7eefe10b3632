// weft_api_json: include/c_api/weft_api.json, as it was when the library was built. The library has it compressed, a tenth of
// its size; it is unpacked at the first call, into memory that the process has from its start, so that the call cannot fail.
#include <description_size.h>  // made by scripts/cmake/description.py
#include <zlib.h>

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

char g_text[WEFT_DESCRIPTION_SIZE + 1];  // and a NUL

// The memory that inflate asks for: about 10 KB of state, and up to 32 KB of window.
struct Workspace {
  alignas(std::max_align_t) unsigned char bytes[64 << 10] = {};
  size_t used = 0;
};
constinit Workspace g_workspace;

void* Take(void* workspace, unsigned count, unsigned size) {
  auto& space = *static_cast<Workspace*>(workspace);
  constexpr size_t kAlign = alignof(std::max_align_t);
  const size_t bytes = (size_t{count} * size + kAlign - 1) / kAlign * kAlign;
  if (bytes > sizeof(space.bytes) - space.used) return nullptr;
  space.used += bytes;
  return space.bytes + (space.used - bytes);
}
void GiveBack(void*, void*) {}

size_t Unpack() {
  z_stream stream = {};
  stream.zalloc = Take;
  stream.zfree = GiveBack;
  stream.opaque = &g_workspace;
  stream.next_in = const_cast<unsigned char*>(weft_description_begin);
  stream.avail_in = static_cast<unsigned>(weft_description_end - weft_description_begin);
  stream.next_out = reinterpret_cast<unsigned char*>(g_text);
  stream.avail_out = WEFT_DESCRIPTION_SIZE;
  if (inflateInit(&stream) != Z_OK) return 0;
  (void)inflate(&stream, Z_FINISH);
  (void)inflateEnd(&stream);
  return stream.total_out;
}

}  // namespace

extern "C" const char* weft_api_json(size_t* out_length) noexcept {
  static const size_t length = Unpack();
  if (out_length != nullptr) *out_length = length;
  return g_text;
}
