// See describe.h.
#include "src/backends/cpu/describe.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/backends/cpu/kernels/chosen.h"

namespace weft::cpu {
namespace {

std::string_view PlaceName(BufferRef::Place place) {
  static constexpr std::string_view kNames[] = {"argument", "words", "result", "arena", "constant", "carried"};
  return kNames[static_cast<size_t>(place)];
}

class Describer {
 public:
  Describer(const LoadedProgram& loaded, int threads) : loaded_(loaded), p_(loaded.program), threads_(threads) {
    for (const auto& object : p_.objects) {
      for (size_t i = 0; i < object->keys.size(); ++i) symbols_.try_emplace(object->keys[i], object->symbols[i]);
    }
  }

  LaunchDescription Take() {
    out_.arena_bytes = p_.arena_bytes;
    List(0, 0, "");
    for (KernelDescription& kernel : out_.kernels) {
      for (BufferDescription& buffer : kernel.buffers) {
        const auto [first, last] = lives_[{buffer.place, buffer.index, buffer.offset}];
        buffer.first = first;
        buffer.last = last;
      }
    }
    return std::move(out_);
  }
  KernelDescription Kernel(const Entry& e) const {
    KernelDescription kernel;
    if (e.type == Entry::Type::kLoop) {
      kernel.name = LoopName(e.code);
      kernel.implementation = absl::StrCat("loop ", loaded_.code->target().name());
      kernel.flops = e.flops;
    } else {
      Host(e, &kernel);
    }
    kernel.tasks = e.tasks;
    kernel.bytes_read = e.reads;
    kernel.bytes_written = e.writes;
    for (const uint32_t at : e.origins) {
      kernel.operations.push_back(p_.origins[at].op);
      kernel.positions.push_back(p_.origins[at].where);
    }
    return kernel;
  }

 private:
  // That of its machine code, by which profilers and debuggers know it (loop_names.h).
  std::string LoopName(uint32_t loop) const {
    const auto symbol = symbols_.find(p_.loops[loop]);
    return std::string(symbol != symbols_.end() ? symbol->second : "loop");
  }
  void Host(const Entry& e, KernelDescription* kernel) const {
    kernel->name = p_.host_kernels[e.code];
    kernel->implementation = kernel->name;
    const HostKernel* const host = loaded_.host[e.code];
    if (host == nullptr) return;  // a caller's function
    if (host->flops != nullptr) kernel->flops = host->flops(e.params);
    if (host->prepare != nullptr) {
      const ChoiceScope scope;
      ScratchNeeds needs;
      BlockLoop epilogue;
      epilogue.product = e.epilogue_consumes;
      // It went through when the program was loaded.
      host->prepare({e.params, loaded_.code->kernels(), threads_, needs, e.epilogue >= 0 ? &epilogue : nullptr})
          .IgnoreError();
      if (!scope.chosen().empty()) kernel->implementation = scope.chosen();
    }
    if (!absl::StrContains(kernel->implementation, "amx")) {
      absl::StrAppend(&kernel->implementation, " ", loaded_.code->target().name());
    }
    // Products and convolutions say the type that they read.
    if (host->flops != nullptr && host->input != nullptr) {
      absl::StrAppend(&kernel->implementation, " ", weft::NameOf(host->input(e.params)));
    }
    if (e.epilogue >= 0) kernel->epilogue = LoopName(static_cast<uint32_t>(e.epilogue));
  }

  void List(uint32_t list, int depth, const std::string& within) {
    for (const Entry& e : p_.lists[list]) {
      const auto at = static_cast<int64_t>(out_.kernels.size());
      KernelDescription kernel;
      if (IsControl(e)) {
        const int64_t trips = p_.controls[e.code].trips;
        const bool repeat = e.type == Entry::Type::kRepeat;
        kernel.control = true;
        kernel.name = !repeat ? "branch" : trips >= 0 ? absl::StrCat("repeat ", trips, " times") : "repeat while";
      } else {
        kernel = Kernel(e);
      }
      kernel.depth = depth;
      kernel.within = within;
      for (const BufferRef& ref : e.buffers) {
        BufferDescription buffer{PlaceName(ref.place), ref.index, ref.offset, at, at};
        const auto [life, fresh] = lives_.try_emplace({buffer.place, buffer.index, buffer.offset}, std::pair(at, at));
        if (!fresh) life->second.second = at;
        kernel.buffers.push_back(buffer);
      }
      out_.kernels.push_back(std::move(kernel));
      if (!IsControl(e)) continue;
      const Control& control = p_.controls[e.code];
      for (size_t i = 0; i < control.lists.size(); ++i) {
        const bool branch = e.type == Entry::Type::kBranch;
        const bool condition = !branch && control.trips < 0 && i == 0;
        List(control.lists[i], depth + 1, branch ? absl::StrCat("case ", i) : condition ? "condition" : "body");
      }
    }
  }

  const LoadedProgram& loaded_;
  const Program& p_;
  const int threads_;
  std::map<std::string_view, std::string_view> symbols_;  // by loop
  LaunchDescription out_;
  std::map<std::tuple<std::string_view, uint32_t, int64_t>, std::pair<int64_t, int64_t>> lives_;
};

}  // namespace

LaunchDescription Describe(const LoadedProgram& loaded, int threads) { return Describer(loaded, threads).Take(); }

void NameEntries(LoadedProgram& loaded) {
  const Program& program = loaded.program;
  std::map<std::string_view, const char*> symbols;  // by loop
  for (const auto& object : program.objects) {
    for (size_t i = 0; i < object->keys.size(); ++i) symbols.try_emplace(object->keys[i], object->symbols[i].c_str());
  }
  loaded.texts.clear();
  for (const EntryList& list : program.lists) {
    std::vector<const char*>& texts = loaded.texts.emplace_back(list.size(), nullptr);
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].type == Entry::Type::kHost) texts[i] = program.host_kernels[list[i].code].c_str();
      if (list[i].type != Entry::Type::kLoop) continue;
      const auto symbol = symbols.find(program.loops[list[i].code]);
      if (symbol != symbols.end()) texts[i] = symbol->second;
    }
  }
}

KernelNames NamesOf(const LoadedProgram& loaded, int threads) {
  const Describer describer(loaded, threads);
  KernelNames names;
  for (const EntryList& list : loaded.program.lists) {
    std::vector<KernelNames::Of>& of = names.lists.emplace_back();
    for (const Entry& entry : list) {
      KernelNames::Of& name = of.emplace_back();
      if (IsControl(entry)) continue;
      const KernelDescription kernel = describer.Kernel(entry);
      std::string where;
      for (const std::string& position : kernel.positions) {
        if (position.empty() || absl::StrContains(where, position)) continue;
        absl::StrAppend(&where, where.empty() ? "" : ", ", position);
      }
      SpanName span{.text = kernel.name,
                    .kind = SpanKind::kKernel,
                    .implementation = kernel.implementation,
                    .where = where,
                    .flops = kernel.flops,
                    .bytes_read = kernel.bytes_read,
                    .bytes_written = kernel.bytes_written};
      name.kernel = InternSpanName(span);
      name.share = InternSpanName({.text = kernel.name, .kind = SpanKind::kShare});
    }
  }
  return names;
}

}  // namespace weft::cpu
