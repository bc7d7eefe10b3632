// Finds the note that the linker left in the object which holds this code.
#include "src/compiler/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace weft::compiler {
namespace {

// Counted up by hand where no build id exists: whenever passes or code generation change.
constexpr char kVersion[] = "weft-compiler-1";

struct Search {
  uintptr_t address;
  std::string id;
};

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

int Visit(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
    ours = ours || (header.p_type == PT_LOAD && search->address >= begin && search->address < begin + header.p_memsz);
  }
  if (!ours) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE || !search->id.empty()) continue;
    ReadNotes(reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr), header.p_memsz, &search->id);
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  Search search{reinterpret_cast<uintptr_t>(&BuildId), {}};
  dl_iterate_phdr(Visit, &search);
  return search.id.empty() ? kVersion : search.id;
}

}  // namespace weft::compiler
