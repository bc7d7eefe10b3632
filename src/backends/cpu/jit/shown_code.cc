// See shown_code.h.
#include "src/backends/cpu/jit/shown_code.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llvm/BinaryFormat/ELF.h"
#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "src/runtime/fork.h"
#include "src/runtime/lasting.h"
#include "src/runtime/mutex.h"

// GDB's interface: it reads the list from the process and stops at the function, which has no other use.
extern "C" {
struct WeftGdbObject {
  WeftGdbObject* next = nullptr;
  WeftGdbObject* previous = nullptr;
  const char* file = nullptr;
  uint64_t bytes = 0;
};
struct WeftGdbList {
  uint32_t version = 1;
  uint32_t action = 0;  // of the list's last change: 1, an object came; 2, one went
  WeftGdbObject* changed = nullptr;
  WeftGdbObject* first = nullptr;
};
[[gnu::visibility("default")]] extern WeftGdbList __jit_debug_descriptor;
[[gnu::visibility("default")]] void __jit_debug_register_code();
WeftGdbList __jit_debug_descriptor;
[[gnu::noinline]] void __jit_debug_register_code() { asm volatile("" ::: "memory"); }
}

namespace weft::cpu {
namespace {

using llvm::Error;
using llvm::jitlink::LinkGraph;
namespace elf = llvm::ELF;

constexpr char kFrames[] = ".eh_frame";

struct Place {
  uint64_t address = 0, bytes = 0;
};

// An object with where its functions and sections have come to lie.
struct Shown {
  std::string object;  // empty unless GDB is told
  std::vector<LoadedFunction> functions;
  std::map<std::string, Place> sections;
};

// --- GDB ----------------------------------------------------------------------------------------------------------------

// The object as a file that is linked: sections and symbols have their addresses, and unwinding information is as it lies there.
void LinkForGdb(const Shown& shown, std::string* object) {
  auto* const header = reinterpret_cast<elf::Elf64_Ehdr*>(object->data());
  if (header->e_shoff > object->size() ||
      header->e_shnum > (object->size() - header->e_shoff) / sizeof(elf::Elf64_Shdr) ||
      header->e_shstrndx >= header->e_shnum) {
    return;
  }
  header->e_type = elf::ET_EXEC;
  auto* const sections = reinterpret_cast<elf::Elf64_Shdr*>(object->data() + header->e_shoff);
  const elf::Elf64_Shdr& names = sections[header->e_shstrndx];
  const auto inside = [&](const elf::Elf64_Shdr& section) {
    return section.sh_offset <= object->size() && section.sh_size <= object->size() - section.sh_offset;
  };
  if (!inside(names)) return;
  for (int i = 0; i < header->e_shnum; ++i) {
    elf::Elf64_Shdr& section = sections[i];
    if (section.sh_type == elf::SHT_RELA || section.sh_type == elf::SHT_REL) section.sh_type = elf::SHT_NULL;
    if ((section.sh_flags & elf::SHF_ALLOC) == 0 || section.sh_name >= names.sh_size) continue;
    const char* const name = object->data() + names.sh_offset + section.sh_name;
    const auto found = shown.sections.find(std::string(name, strnlen(name, names.sh_size - section.sh_name)));
    if (found == shown.sections.end()) continue;
    section.sh_addr = found->second.address;
    if (found->first != kFrames || !inside(section)) continue;
    section.sh_type = elf::SHT_PROGBITS;
    std::memcpy(object->data() + section.sh_offset, reinterpret_cast<const void*>(found->second.address),
                std::min<uint64_t>(section.sh_size, found->second.bytes));
  }
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != elf::SHT_SYMTAB || !inside(sections[i])) continue;
    auto* const symbols = reinterpret_cast<elf::Elf64_Sym*>(object->data() + sections[i].sh_offset);
    for (size_t s = 0; s < sections[i].sh_size / sizeof(elf::Elf64_Sym); ++s) {
      if (symbols[s].st_shndx > 0 && symbols[s].st_shndx < header->e_shnum)
        symbols[s].st_value += sections[symbols[s].st_shndx].sh_addr;
    }
  }
}

// The process's list.
struct GdbObjects {
  Mutex mutex;  // of __jit_debug_descriptor and the objects in its list
  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
  static GdbObjects& All() {
    static Lasting<GdbObjects> all;
    return all.Get();
  }
};

class GdbObject {
 public:
  explicit GdbObject(std::string object) : object_(std::move(object)) {
    entry_.file = object_.data();
    entry_.bytes = object_.size();
    MutexLock lock(GdbObjects::All().mutex);
    entry_.next = __jit_debug_descriptor.first;
    if (entry_.next != nullptr) entry_.next->previous = &entry_;
    __jit_debug_descriptor.first = &entry_;
    Tell(1);
  }
  ~GdbObject() {
    MutexLock lock(GdbObjects::All().mutex);
    if (entry_.next != nullptr) entry_.next->previous = entry_.previous;
    (entry_.previous != nullptr ? entry_.previous->next : __jit_debug_descriptor.first) = entry_.next;
    Tell(2);
  }
  GdbObject(const GdbObject&) = delete;
  GdbObject& operator=(const GdbObject&) = delete;

 private:
  void Tell(uint32_t action) {
    __jit_debug_descriptor.action = action;
    __jit_debug_descriptor.changed = &entry_;
    __jit_debug_register_code();
  }
  const std::string object_;
  WeftGdbObject entry_;
};

// --- libgcc's unwinder --------------------------------------------------------------------------------------------------

// Unwinding information of code that backtrace() and exceptions may meet. The library's own unwinder is linked into it and knows
// nothing of the process's.
class UnwoundFrames {
 public:
  explicit UnwoundFrames(Place frames) : frames_(reinterpret_cast<void*>(frames.address)) {
    if (Unwinder().add != nullptr) Unwinder().add(frames_);
  }
  ~UnwoundFrames() {
    if (Unwinder().remove != nullptr) Unwinder().remove(frames_);
  }
  UnwoundFrames(const UnwoundFrames&) = delete;
  UnwoundFrames& operator=(const UnwoundFrames&) = delete;

 private:
  struct Functions {
    using Fn = void(void*);
    Functions() {
      void* const library = dlopen("libgcc_s.so.1", RTLD_NOW);  // stays loaded
      if (library == nullptr) return;
      add = reinterpret_cast<Fn*>(dlsym(library, "__register_frame"));
      remove = reinterpret_cast<Fn*>(dlsym(library, "__deregister_frame"));
      if (add == nullptr || remove == nullptr) add = remove = nullptr;
    }
    Fn* add = nullptr;
    Fn* remove = nullptr;
  };
  static const Functions& Unwinder() {
    static Lasting<Functions> functions;
    return functions.Get();
  }
  void* const frames_;
};

// --- The linker's plugin ------------------------------------------------------------------------------------------------

class CodeTeller : public llvm::orc::ObjectLinkingLayer::Plugin {
 public:
  explicit CodeTeller(CodeWatch watch) : watch_(std::move(watch)) {}

  void notifyMaterializing(llvm::orc::MaterializationResponsibility& responsibility, LinkGraph& graph,
                           llvm::jitlink::JITLinkContext& context, llvm::MemoryBufferRef object) override {
    if (!Tells()) return;
    MutexLock lock(mutex_);
    Shown& shown = linking_[&responsibility];
    if (watch_.gdb) shown.object = object.getBuffer().str();
  }

  void modifyPassConfig(llvm::orc::MaterializationResponsibility& responsibility, LinkGraph& graph,
                        llvm::jitlink::PassConfiguration& passes) override {
    if (!Tells()) {
      passes.PrePrunePasses.insert(passes.PrePrunePasses.begin(), [](LinkGraph& linked) {
        if (llvm::jitlink::Section* const frames = linked.findSectionByName(kFrames)) linked.removeSection(*frames);
        return Error::success();
      });
      return;
    }
    passes.PostAllocationPasses.push_back([this, of = &responsibility](LinkGraph& linked) {
      MutexLock lock(mutex_);
      Shown& shown = linking_[of];
      for (llvm::jitlink::Section& section : linked.sections()) {
        const llvm::jitlink::SectionRange range(section);
        if (!range.empty()) shown.sections[section.getName().str()] = {range.getStart().getValue(), range.getSize()};
      }
      for (const llvm::jitlink::Symbol* const symbol : linked.defined_symbols()) {
        if (!symbol->hasName() || !symbol->isCallable() || symbol->getSize() == 0) continue;
        shown.functions.push_back({symbol->getName().str(), symbol->getAddress().getValue(), symbol->getSize()});
      }
      return Error::success();
    });
  }

  // The code is in its place.
  Error notifyEmitted(llvm::orc::MaterializationResponsibility& responsibility) override {
    if (!Tells()) return Error::success();
    Shown shown;
    {
      MutexLock lock(mutex_);
      auto linked = linking_.extract(&responsibility);
      if (linked.empty()) return Error::success();
      shown = std::move(linked.mapped());
    }
    Told told;
    if (const auto frames = shown.sections.find(kFrames); frames != shown.sections.end())
      told.frames = std::make_unique<UnwoundFrames>(frames->second);
    if (watch_.gdb) {
      std::string object = std::move(shown.object);
      LinkForGdb(shown, &object);
      told.gdb = std::make_unique<GdbObject>(std::move(object));
    }
    const absl::Status written = AddToPerfFile(watch_.perf, shown.functions);
    if (!written.ok() && watch_.log.Wants(LogLevel::kWarning)) watch_.log.write(LogLevel::kWarning, written.message());
    return responsibility.withResourceKeyDo([&](llvm::orc::ResourceKey key) {
      MutexLock lock(mutex_);
      told_.emplace(key, std::move(told));
    });
  }
  Error notifyFailed(llvm::orc::MaterializationResponsibility& responsibility) override {
    MutexLock lock(mutex_);
    linking_.erase(&responsibility);
    return Error::success();
  }
  Error notifyRemovingResources(llvm::orc::JITDylib& library, llvm::orc::ResourceKey key) override {
    std::vector<Told> going;  // out of the lock's reach
    MutexLock lock(mutex_);
    for (auto one = told_.find(key); one != told_.end() && one->first == key; one = told_.erase(one))
      going.push_back(std::move(one->second));
    return Error::success();
  }
  void notifyTransferringResources(llvm::orc::JITDylib& library, llvm::orc::ResourceKey to,
                                   llvm::orc::ResourceKey from) override {
    MutexLock lock(mutex_);
    while (true) {
      auto one = told_.extract(from);
      if (one.empty()) return;
      one.key() = to;
      told_.insert(std::move(one));
    }
  }

 private:
  // An object as GDB and the unwinder know it, until it goes.
  struct Told {
    std::unique_ptr<GdbObject> gdb;
    std::unique_ptr<UnwoundFrames> frames;
  };
  bool Tells() const { return watch_.gdb || watch_.perf != PerfFile::kOff; }

  const CodeWatch watch_;
  Mutex mutex_;
  std::map<const llvm::orc::MaterializationResponsibility*, Shown> linking_ ABSL_GUARDED_BY(mutex_);
  std::multimap<llvm::orc::ResourceKey, Told> told_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<llvm::orc::ObjectLinkingLayer::Plugin> NewCodeTeller(CodeWatch watch) {
  return std::make_shared<CodeTeller>(std::move(watch));
}

}  // namespace weft::cpu
