// weft_api_json: include/c_api/weft_api.json, as it was when the library was built.
#include <cstddef>

#include "weft.h"

// About half a megabyte, which no compiler need read as a literal.
asm(".pushsection .rodata, \"a\", @progbits\n"
    ".globl weft_description_begin\n"
    ".hidden weft_description_begin\n"
    ".globl weft_description_end\n"
    ".hidden weft_description_end\n"
    "weft_description_begin:\n"
    ".incbin \"" WEFT_DESCRIPTION
    "\"\n"
    "weft_description_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {

extern const char weft_description_begin[];
extern const char weft_description_end[];

const char* weft_api_json(size_t* out_length) noexcept {
  if (out_length != nullptr) *out_length = static_cast<size_t>(weft_description_end - weft_description_begin);
  return weft_description_begin;
}

}  // extern "C"
