// JitLibrary: an object file that LLVM wrote for IR of ours, laid out in memory. Programs from the cache are linked before
// their first step, so this knows of ELF what such objects have and refuses the rest: one mapping, code first, then the
// slots through which imports are called, then what is only read.
#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "src/backends/cpu/jit/jit.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint64_t kPageSize = 4096;
constexpr uint64_t kNowhere = ~uint64_t{0};
// "jmp *2(%rip)", two bytes of nothing and the address: what is called, since an import may be further than 2 GB away, and
// what is read where code asks for a pointer.
constexpr uint64_t kSlotBytes = 16, kSlotAddress = 8;
constexpr unsigned char kSlotCode[kSlotAddress] = {0xff, 0x25, 2, 0, 0, 0, 0xcc, 0xcc};

absl::Status Damaged(std::string_view what) {
  return UserErrorOf(absl::StatusCode::kDataLoss, "compiled object cannot be read: ", what);
}

absl::Status Unmappable(std::string_view call) {
  const int failure = errno;
  if (failure == EACCES || failure == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat(
        "this process may not have executable memory: ", call, " says \"", std::strerror(failure),
        "\" (a seccomp filter, SELinux's execmem or PR_SET_MDWE denies it). The platform 'cpu' compiles to "
        "machine code; the platform 'reference' works without (option platform, variable WEFT_PLATFORM)"));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no memory for machine code: ", call, " says \"", std::strerror(failure), "\""));
}

template <typename T>
bool ReadAt(Bytes bytes, uint64_t offset, T* value) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(value, bytes.data() + offset, sizeof(T));
  return true;
}

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// Of one object: what it has is looked at once and then laid out, copied and resolved.
class Linker {
 public:
  explicit Linker(Bytes object) : object_(object) {}

  absl::Status Read();
  // Where everything will lie.
  absl::Status Lay();
  uint64_t bytes() const { return bytes_; }
  uint64_t code_bytes() const { return code_bytes_; }
  // `memory` has bytes() of zeros.
  absl::Status Fill(std::byte* memory);
  absl::StatusOr<std::vector<std::pair<std::string, void*>>> Functions(std::byte* memory) const;

 private:
  struct Section {
    Elf64_Shdr header;
    Bytes bytes;             // none of SHT_NOBITS
    uint64_t at = kNowhere;  // in memory, of what is loaded
  };

  bool Loaded(const Section& section) const { return (section.header.sh_flags & SHF_ALLOC) != 0; }
  // Null-terminated in the strings of the symbols.
  absl::StatusOr<std::string_view> NameOf(const Elf64_Sym& symbol) const;
  // Of a symbol that the object defines.
  absl::StatusOr<uint64_t> PlaceOf(const Elf64_Sym& symbol) const;
  absl::StatusOr<uint64_t> AddressOf(const Elf64_Sym& symbol, std::byte* memory) const;
  // Calls see(section, relocation) for those of loaded sections, whose symbols and places exist.
  template <typename See>
  absl::Status EachRelocation(See see) const;
  absl::Status Resolve(const Section& section, const Elf64_Rela& relocation, std::byte* memory) const;

  const Bytes object_;
  std::vector<Section> sections_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<uint64_t> slots_;  // by symbol
  Bytes names_;
  uint64_t bytes_ = 0, code_bytes_ = 0;
};

absl::Status Linker::Read() {
  Elf64_Ehdr header;
  if (!ReadAt(object_, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return UserErrorOf(absl::StatusCode::kDataLoss, "compiled object of ", object_.size(), " bytes is not an ELF file");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64 || header.e_type != ET_REL) {
    return UserErrorOf(absl::StatusCode::kDataLoss, "compiled object is not an x86-64 relocatable file");
  }
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Section section;
    if (header.e_shoff > object_.size() || !ReadAt(object_, header.e_shoff + i * sizeof(Elf64_Shdr), &section.header)) {
      return Damaged("it ends within its sections");
    }
    const Elf64_Shdr& s = section.header;
    if (s.sh_type != SHT_NOBITS && s.sh_type != SHT_NULL) {
      if (s.sh_offset > object_.size() || object_.size() - s.sh_offset < s.sh_size) {
        return Damaged("it ends within a section");
      }
      section.bytes = object_.subspan(s.sh_offset, s.sh_size);
    }
    if (Loaded(section) && (!std::has_single_bit(std::max<uint64_t>(s.sh_addralign, 1)) || s.sh_addralign > kPageSize ||
                            s.sh_size > std::numeric_limits<int32_t>::max() || (s.sh_flags & SHF_TLS) != 0)) {
      return Damaged("a section that code of ours does not have");
    }
    sections_.push_back(section);
  }
  for (const Section& section : sections_) {
    if (section.header.sh_type != SHT_SYMTAB) continue;
    if (section.header.sh_link >= sections_.size() || !symbols_.empty()) return Damaged("symbols without names");
    names_ = sections_[section.header.sh_link].bytes;
    symbols_.resize(section.bytes.size() / sizeof(Elf64_Sym));
    if (!symbols_.empty()) std::memcpy(symbols_.data(), section.bytes.data(), symbols_.size() * sizeof(Elf64_Sym));
  }
  slots_.assign(symbols_.size(), kNowhere);
  return absl::OkStatus();
}

absl::Status Linker::Lay() {
  const auto lay = [&](bool code) {
    for (Section& section : sections_) {
      if (!Loaded(section) || ((section.header.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
      section.at = RoundUp(bytes_, std::max<uint64_t>(section.header.sh_addralign, 1));
      bytes_ = section.at + section.header.sh_size;
    }
  };
  lay(true);
  bytes_ = RoundUp(bytes_, kSlotBytes);
  WEFT_RETURN_IF_ERROR(EachRelocation([&](const Section&, const Elf64_Rela& relocation) {
    const uint64_t symbol = ELF64_R_SYM(relocation.r_info);
    const uint32_t type = ELF64_R_TYPE(relocation.r_info);
    const bool pointer = type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX;
    if ((pointer || symbols_[symbol].st_shndx == SHN_UNDEF) && slots_[symbol] == kNowhere) {
      slots_[symbol] = bytes_;
      bytes_ += kSlotBytes;
    }
    return absl::OkStatus();
  }));
  bytes_ = code_bytes_ = RoundUp(bytes_, kPageSize);
  lay(false);
  bytes_ = RoundUp(bytes_, kPageSize);
  // Distances within it are 32 bits wide.
  if (bytes_ > std::numeric_limits<int32_t>::max()) return Damaged("it is larger than 2 GB");
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> Linker::NameOf(const Elf64_Sym& symbol) const {
  if (symbol.st_name >= names_.size()) return Damaged("a symbol without a name");
  const char* const begin = reinterpret_cast<const char*>(names_.data()) + symbol.st_name;
  const void* const end = std::memchr(begin, 0, names_.size() - symbol.st_name);
  if (end == nullptr) return Damaged("a symbol without a name");
  return std::string_view(begin, static_cast<size_t>(static_cast<const char*>(end) - begin));
}

absl::StatusOr<uint64_t> Linker::PlaceOf(const Elf64_Sym& symbol) const {
  if (symbol.st_shndx >= sections_.size()) return Damaged("a symbol outside its sections");
  const Section& section = sections_[symbol.st_shndx];
  if (section.at == kNowhere || symbol.st_value > section.header.sh_size) {
    return Damaged("a symbol outside what is loaded");
  }
  return section.at + symbol.st_value;
}

absl::StatusOr<uint64_t> Linker::AddressOf(const Elf64_Sym& symbol, std::byte* memory) const {
  if (symbol.st_shndx != SHN_UNDEF) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t place, PlaceOf(symbol));
    return reinterpret_cast<uint64_t>(memory) + place;
  }
  WEFT_ASSIGN_OR_RETURN(const std::string_view name, NameOf(symbol));
  for (const RuntimeSymbol& known : RuntimeSymbols()) {
    if (known.name == name) return reinterpret_cast<uint64_t>(known.address);
  }
  return Damaged(absl::StrCat("it wants the unknown function '", name, "'"));
}

template <typename See>
absl::Status Linker::EachRelocation(See see) const {
  for (const Section& list : sections_) {
    if (list.header.sh_type != SHT_RELA && list.header.sh_type != SHT_REL) continue;
    if (list.header.sh_info >= sections_.size()) return Damaged("references of no section");
    const Section& section = sections_[list.header.sh_info];
    if (!Loaded(section)) continue;
    if (list.header.sh_type == SHT_REL) return Damaged("references without addends");
    Elf64_Rela relocation;
    for (uint64_t at = 0; ReadAt(list.bytes, at, &relocation); at += sizeof(relocation)) {
      const uint64_t width = ELF64_R_TYPE(relocation.r_info) == R_X86_64_64 ? 8 : 4;
      if (ELF64_R_SYM(relocation.r_info) >= symbols_.size() || relocation.r_offset > section.bytes.size() ||
          section.bytes.size() - relocation.r_offset < width) {
        return Damaged("a reference outside what it is in");
      }
      WEFT_RETURN_IF_ERROR(see(section, relocation));
    }
  }
  return absl::OkStatus();
}

absl::Status Linker::Resolve(const Section& section, const Elf64_Rela& relocation, std::byte* memory) const {
  const uint64_t symbol = ELF64_R_SYM(relocation.r_info);
  const uint64_t place = section.at + relocation.r_offset;
  const auto addend = static_cast<uint64_t>(relocation.r_addend);
  uint64_t to;
  switch (ELF64_R_TYPE(relocation.r_info)) {
    case R_X86_64_64: {
      WEFT_ASSIGN_OR_RETURN(to, AddressOf(symbols_[symbol], memory));
      to += addend;
      std::memcpy(memory + place, &to, sizeof(to));
      return absl::OkStatus();
    }
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      to = slots_[symbol];
      if (symbols_[symbol].st_shndx != SHN_UNDEF) {
        WEFT_ASSIGN_OR_RETURN(to, PlaceOf(symbols_[symbol]));
      }
      break;
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX: to = slots_[symbol] + kSlotAddress; break;
    default: return Damaged(absl::StrCat("a reference of type ", ELF64_R_TYPE(relocation.r_info)));
  }
  const auto distance = static_cast<int64_t>(to + addend - place);
  const auto narrow = static_cast<int32_t>(distance);
  if (narrow != distance) return Damaged("a reference further than 2 GB");
  std::memcpy(memory + place, &narrow, sizeof(narrow));
  return absl::OkStatus();
}

absl::Status Linker::Fill(std::byte* memory) {
  for (const Section& section : sections_) {
    if (Loaded(section) && !section.bytes.empty()) {
      std::memcpy(memory + section.at, section.bytes.data(), section.bytes.size());
    }
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i] == kNowhere) continue;
    WEFT_ASSIGN_OR_RETURN(const uint64_t address, AddressOf(symbols_[i], memory));
    std::memcpy(memory + slots_[i], kSlotCode, sizeof(kSlotCode));
    std::memcpy(memory + slots_[i] + kSlotAddress, &address, sizeof(address));
  }
  return EachRelocation(
      [&](const Section& section, const Elf64_Rela& relocation) { return Resolve(section, relocation, memory); });
}

absl::StatusOr<std::vector<std::pair<std::string, void*>>> Linker::Functions(std::byte* memory) const {
  std::vector<std::pair<std::string, void*>> functions;
  for (const Elf64_Sym& symbol : symbols_) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF) continue;
    WEFT_ASSIGN_OR_RETURN(const std::string_view name, NameOf(symbol));
    WEFT_ASSIGN_OR_RETURN(const uint64_t place, PlaceOf(symbol));
    if (place >= code_bytes_) return Damaged("a function outside its code");
    functions.emplace_back(name, memory + place);
  }
  return functions;
}

}  // namespace

JitLibrary::~JitLibrary() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

absl::StatusOr<void*> JitLibrary::Lookup(std::string_view symbol) const {
  for (const auto& [name, address] : functions_) {
    if (name == symbol) return address;
  }
  return UserErrorOf(absl::StatusCode::kNotFound, "compiled object has no function '", symbol, "'");
}

absl::StatusOr<std::unique_ptr<JitLibrary>> Jit::Load(std::span<const std::byte> object) {
  Linker linker(object);
  WEFT_RETURN_IF_ERROR(linker.Read());
  WEFT_RETURN_IF_ERROR(linker.Lay());
  std::unique_ptr<JitLibrary> library(new JitLibrary);
  if (linker.bytes() == 0) return library;
  void* const mapped = mmap(nullptr, linker.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return Unmappable("mmap");
  auto* const memory = static_cast<std::byte*>(mapped);
  library->memory_ = memory;
  library->bytes_ = linker.bytes();
  WEFT_RETURN_IF_ERROR(linker.Fill(memory));
  if (mprotect(memory, linker.code_bytes(), PROT_READ | PROT_EXEC) != 0) {
    return Unmappable("mprotect(PROT_READ | PROT_EXEC)");
  }
  if (mprotect(memory + linker.code_bytes(), linker.bytes() - linker.code_bytes(), PROT_READ) != 0) {
    return Unmappable("mprotect(PROT_READ)");
  }
  WEFT_ASSIGN_OR_RETURN(library->functions_, linker.Functions(memory));
  return library;
}

}  // namespace weft::cpu
