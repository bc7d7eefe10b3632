// See library_file.h.
#include "src/runtime/library_file.h"

#include <elf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "src/runtime/status.h"

namespace weft {
namespace {

// Usually under 20; the loader reads them all.
constexpr size_t kMostHeaders = 4096;

std::string MachineOf(uint16_t machine) {
  switch (machine) {
    case EM_386: return "32-bit x86";
    case EM_X86_64: return "x86-64";
    case EM_ARM: return "32-bit ARM";
    case EM_AARCH64: return "64-bit ARM (aarch64)";
    case EM_PPC64: return "64-bit PowerPC";
    case EM_S390: return "s390x";
    case EM_RISCV: return "RISC-V";
    default: return absl::StrCat("machine number ", machine, " of ELF");
  }
}

template <typename Value>
std::span<std::byte> BytesOf(Value* values, size_t count = 1) {
  return std::as_writable_bytes(std::span(values, count));
}

// Returns the end of the bytes that the loader will map.
absl::StatusOr<uint64_t> EndOf(const File& file, int64_t size, const Elf64_Ehdr& head) {
  uint64_t end = 0;
  if (head.e_phnum == 0) return end;
  if (head.e_phentsize != sizeof(Elf64_Phdr) || head.e_phnum > kMostHeaders || head.e_phoff > uint64_t{1} << 62) {
    return UserError("its ELF header tells of ", head.e_phnum, " segments in entries of ", head.e_phentsize, " bytes");
  }
  const uint64_t headers_end = head.e_phoff + head.e_phnum * sizeof(Elf64_Phdr);
  if (headers_end > static_cast<uint64_t>(size)) return headers_end;
  std::vector<Elf64_Phdr> segments(head.e_phnum);
  WEFT_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(head.e_phoff), BytesOf(segments.data(), segments.size())));
  for (const Elf64_Phdr& segment : segments) {
    uint64_t its_end = 0;
    if (__builtin_add_overflow(segment.p_offset, segment.p_filesz, &its_end)) its_end = UINT64_MAX;
    end = std::max(end, its_end);
  }
  return end;
}

absl::Status Check(const File& file, int64_t size) {
  Elf64_Ehdr head = {};
  const size_t there = std::min(sizeof(head), static_cast<size_t>(size));
  WEFT_RETURN_IF_ERROR(file.ReadAt(0, BytesOf(&head).first(there)));
  if (there < EI_NIDENT || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) {
    return UserError("its ", size, " bytes are no shared library (ELF)");
  }
  // e_machine lies at the same place in both classes.
  if (there >= offsetof(Elf64_Ehdr, e_version) && head.e_ident[EI_DATA] == ELFDATA2LSB && head.e_machine != EM_X86_64) {
    return UserError("it is for ", MachineOf(head.e_machine), ", and this process is x86-64");
  }
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_ident[EI_DATA] != ELFDATA2LSB) {
    return UserError("it is for a ", head.e_ident[EI_CLASS] == ELFCLASS64 ? "big-endian" : "32-bit",
                     " machine, and this process is x86-64");
  }
  if (there == sizeof(head) && head.e_type != ET_DYN) return UserError("it is an ELF file, but no shared library");
  uint64_t end = sizeof(head);
  if (there == sizeof(head)) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t mapped, EndOf(file, size, head));
    end = std::max(end, mapped);
  }
  if (end <= static_cast<uint64_t>(size)) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kDataLoss, "it is cut off: it has ", size,
                     " bytes, and its segments end at byte ", end);
}

}  // namespace

absl::StatusOr<File> OpenLibrary(FileSystem* fs, const std::string& path, std::string_view what, FileInfo* info) {
  WEFT_ASSIGN_OR_RETURN(File file, File::OpenToRead(fs, path, info));
  if (const absl::Status status = Check(file, info->size); !status.ok()) {
    return UserErrorOf(status.code(), what, " '", path, "' cannot be loaded: ", status.message());
  }
  return file;
}

}  // namespace weft
