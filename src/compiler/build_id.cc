// Finds the note that the linker left in the object which holds this code.
#include "src/compiler/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <span>

namespace weft::compiler {
namespace {

// Counted up by hand where no build id exists: whenever passes or code generation change.
constexpr char kVersion[] = "weft-compiler-1";

void ReadNotes(const char* at, size_t size, std::string* id) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof(note));
    const size_t name_size = (size_t{note.n_namesz} + 3) & ~size_t{3};
    const size_t whole = sizeof(note) + name_size + ((size_t{note.n_descsz} + 3) & ~size_t{3});
    if (whole > size) return;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(at + sizeof(note), "GNU", 4) == 0) {
      constexpr char kHex[] = "0123456789abcdef";
      for (size_t i = 0; i < note.n_descsz; ++i) {
        const auto byte = static_cast<uint8_t>(at[sizeof(note) + name_size + i]);
        id->push_back(kHex[byte >> 4]);
        id->push_back(kHex[byte & 15]);
      }
      return;
    }
    at += whole;
    size -= whole;
  }
}

}  // namespace

// Where the linker puts this object's own headers. The loader could be asked too, but it would be asked under its lock, which
// another thread may have had when the process was forked: a context made in the child would wait for it forever.
extern "C" const char __ehdr_start[] __attribute__((visibility("hidden")));

std::string BuildId() {
  ElfW(Ehdr) own;
  std::memcpy(&own, __ehdr_start, sizeof(own));
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(__ehdr_start + own.e_phoff);
  const char* base = __ehdr_start;
  for (const ElfW(Phdr) & header : std::span(headers, own.e_phnum)) {
    if (header.p_type == PT_LOAD && header.p_offset == 0) base -= header.p_vaddr;  // not 0 in programs at a fixed place
  }
  std::string id;
  for (const ElfW(Phdr) & header : std::span(headers, own.e_phnum)) {
    if (header.p_type == PT_NOTE && id.empty()) ReadNotes(base + header.p_vaddr, header.p_memsz, &id);
  }
  return id.empty() ? kVersion : id;
}

}  // namespace weft::compiler
