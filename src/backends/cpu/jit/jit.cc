// LLVM's code generator and JITLink behind Jit. Everything here returns statuses: IR is verified before the code
// generator sees it, because its fatal errors cannot be caught.
#include "src/backends/cpu/jit/jit.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "llvm/ADT/SmallVector.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "src/backends/cpu/jit/amx_model.h"
#include "src/backends/cpu/jit/jit_llvm.h"
#include "src/backends/cpu/jit/shown_code.h"
#include "src/runtime/fork_waits.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";

void StartLlvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

absl::Status FromLlvm(llvm::Error error, std::string_view what) {
  return InternalError(what, ": ", llvm::toString(std::move(error)));
}

// Collects what LLVM would print, so that nothing reaches stderr.
struct DiagnosticCollector : llvm::DiagnosticHandler {
  explicit DiagnosticCollector(std::string* errors) : errors(errors) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() != llvm::DS_Error) return true;
    llvm::raw_string_ostream stream(*errors);
    llvm::DiagnosticPrinterRawOStream printer(stream);
    info.print(printer);
    return true;
  }
  std::string* errors;
};

absl::StatusOr<std::unique_ptr<llvm::TargetMachine>> MakeTargetMachine(const CpuTarget& target) {
  std::string error;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (llvm_target == nullptr) return InternalError("LLVM has no x86-64 target: ", error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // a fused multiply-add only where IR asks for one
  options.TrapUnreachable = false;
  std::unique_ptr<llvm::TargetMachine> machine(
      llvm_target->createTargetMachine(kTriple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                       llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, /*JIT=*/false));
  if (machine == nullptr) return InternalError("LLVM refused the target ", target.cpu, " ", target.features);
  return machine;
}

template <typename Fn>
void* AddressOf(Fn* fn) {
  return reinterpret_cast<void*>(fn);
}

}  // namespace

std::string_view JitVersion() { return "LLVM " LLVM_VERSION_STRING; }

std::string TextOf(const JitModule& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.module->print(stream, nullptr);
  return text;
}

std::span<const RuntimeSymbol> RuntimeSymbols() {
  using F1 = float (*)(float);
  using D1 = double (*)(double);
  using F2 = float (*)(float, float);
  using D2 = double (*)(double, double);
#define WEFT_UNARY(name)                                                    \
  RuntimeSymbol{#name, AddressOf(static_cast<D1>(::name))}, RuntimeSymbol { \
    #name "f", AddressOf(static_cast<F1>(::name##f))                        \
  }
#define WEFT_BINARY(name)                                                   \
  RuntimeSymbol{#name, AddressOf(static_cast<D2>(::name))}, RuntimeSymbol { \
    #name "f", AddressOf(static_cast<F2>(::name##f))                        \
  }
  static const RuntimeSymbol symbols[] = {
      WEFT_UNARY(acos),
      WEFT_UNARY(acosh),
      WEFT_UNARY(asin),
      WEFT_UNARY(asinh),
      WEFT_UNARY(atan),
      WEFT_BINARY(atan2),
      WEFT_UNARY(atanh),
      WEFT_UNARY(cbrt),
      WEFT_UNARY(ceil),
      WEFT_UNARY(cos),
      WEFT_UNARY(cosh),
      WEFT_UNARY(erf),
      WEFT_UNARY(erfc),
      WEFT_UNARY(exp),
      WEFT_UNARY(exp2),
      WEFT_UNARY(expm1),
      WEFT_UNARY(floor),
      WEFT_BINARY(fmax),
      WEFT_BINARY(fmin),
      WEFT_BINARY(fmod),
      WEFT_BINARY(hypot),
      WEFT_UNARY(lgamma),
      WEFT_UNARY(log),
      WEFT_UNARY(log10),
      WEFT_UNARY(log1p),
      WEFT_UNARY(log2),
      RuntimeSymbol{"memcpy", AddressOf(&::memcpy)},
      RuntimeSymbol{"memmove", AddressOf(&::memmove)},
      RuntimeSymbol{"memset", AddressOf(&::memset)},
      WEFT_UNARY(nearbyint),
      WEFT_BINARY(pow),
      WEFT_BINARY(remainder),
      WEFT_UNARY(rint),
      WEFT_UNARY(round),
      WEFT_UNARY(roundeven),
      WEFT_UNARY(sin),
      WEFT_UNARY(sinh),
      WEFT_UNARY(sqrt),
      WEFT_UNARY(tan),
      WEFT_UNARY(tanh),
      WEFT_UNARY(tgamma),
      WEFT_UNARY(trunc),
      RuntimeSymbol{"weft_amx_model_dp", AddressOf(&weft_amx_model_dp)},
      RuntimeSymbol{"weft_amx_model_dpbssd", AddressOf(&weft_amx_model_dpbssd)},
      RuntimeSymbol{"weft_amx_model_dpbsud", AddressOf(&weft_amx_model_dpbsud)},
      RuntimeSymbol{"weft_amx_model_dpbusd", AddressOf(&weft_amx_model_dpbusd)},
      RuntimeSymbol{"weft_amx_model_dpbuud", AddressOf(&weft_amx_model_dpbuud)},
      RuntimeSymbol{"weft_amx_model_load", AddressOf(&weft_amx_model_load)},
      RuntimeSymbol{"weft_amx_model_loadconfig", AddressOf(&weft_amx_model_loadconfig)},
      RuntimeSymbol{"weft_amx_model_release", AddressOf(&weft_amx_model_release)},
      RuntimeSymbol{"weft_amx_model_store", AddressOf(&weft_amx_model_store)},
      RuntimeSymbol{"weft_amx_model_zero", AddressOf(&weft_amx_model_zero)},
      RuntimeSymbol{"weft_launch_ends", AddressOf(&weft_launch_ends)}};
#undef WEFT_UNARY
#undef WEFT_BINARY
  return symbols;
}

// One linking session a Jit, one JITDylib a library: a session costs 0.5 ms, a library about 30 us.
struct JitSession {
  ~JitSession() {
    const ForkWaits fork_waits;
    jit.reset();
  }
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::atomic<uint64_t> next_library{0};
};

struct JitLibrary::Impl {
  std::shared_ptr<JitSession> session;  // outlives the Jit if a library does
  llvm::orc::JITDylib* dylib = nullptr;

  ~Impl() {
    if (dylib == nullptr) return;
    const ForkWaits fork_waits;
    llvm::consumeError(session->jit->getExecutionSession().removeJITDylib(*dylib));
  }
};

namespace {

// Asked when linking has failed: LLVM says no more than that it has. The linker writes code first and then makes it
// executable, so the same is tried here with a page.
absl::Status CheckExecutableMemory() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::OkStatus();
  const int failure = mprotect(memory, page, PROT_READ | PROT_EXEC) == 0 ? 0 : errno;
  munmap(memory, page);
  if (failure != EACCES && failure != EPERM) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "this process may not have executable memory: mprotect(PROT_READ | PROT_EXEC) says \"", std::strerror(failure),
      "\" (a seccomp filter, SELinux's execmem or PR_SET_MDWE denies it). The platform 'cpu' compiles to "
      "machine code; the platform 'reference' works without (option platform, variable WEFT_PLATFORM)"));
}

}  // namespace

JitLibrary::JitLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JitLibrary::~JitLibrary() = default;

absl::StatusOr<void*> JitLibrary::Lookup(std::string_view symbol) const {
  const ForkWaits fork_waits;
  auto address = impl_->session->jit->lookup(*impl_->dylib, llvm::StringRef(symbol.data(), symbol.size()));
  if (!address) {
    if (absl::Status denied = CheckExecutableMemory(); !denied.ok()) {
      llvm::consumeError(address.takeError());
      return denied;
    }
    return UserErrorOf(absl::StatusCode::kNotFound, "compiled object has no usable function '", symbol,
                       "': ", llvm::toString(address.takeError()));
  }
  return address->toPtr<void*>();
}

namespace {

absl::StatusOr<std::shared_ptr<JitSession>> StartSession(const CodeWatch& watch) {
  StartLlvm();
  llvm::orc::LLJITBuilder builder;
  builder.setJITTargetMachineBuilder(llvm::orc::JITTargetMachineBuilder(llvm::Triple(kTriple)));
  builder.setLinkProcessSymbolsByDefault(false);
  builder.setPlatformSetUp(llvm::orc::setUpInactivePlatform);
  builder.setObjectLinkingLayerCreator(
      [&watch](llvm::orc::ExecutionSession& session,
               const llvm::Triple&) -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> {
        auto layer = std::make_unique<llvm::orc::ObjectLinkingLayer>(session);
        layer->addPlugin(NewCodeTeller(watch));
        return layer;
      });
  auto jit = builder.create();
  if (!jit) return FromLlvm(jit.takeError(), "starting the linker");
  (*jit)->getExecutionSession().setErrorReporter([](llvm::Error error) { llvm::consumeError(std::move(error)); });
  llvm::orc::SymbolMap imports;
  for (const RuntimeSymbol& symbol : RuntimeSymbols()) {
    imports[(*jit)->mangleAndIntern(llvm::StringRef(symbol.name.data(), symbol.name.size()))] = {
        llvm::orc::ExecutorAddr::fromPtr(symbol.address), llvm::JITSymbolFlags::Exported};
  }
  // The main dylib holds what compiled code may import; every library links against it and nothing else.
  if (llvm::Error error = (*jit)->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(imports)))) {
    return FromLlvm(std::move(error), "registering run-time functions");
  }
  auto session = std::make_shared<JitSession>();
  session->jit = std::move(*jit);
  return session;
}

}  // namespace

absl::StatusOr<std::shared_ptr<JitSession>> Jit::Session() const {
  const ForkWaits fork_waits;
  MutexLock lock(session_mutex_);
  if (session_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(session_, StartSession(watch_));
  }
  return session_;
}

Jit::Jit(CpuTarget target, CodeWatch watch) : target_(std::move(target)), watch_(std::move(watch)) {}
Jit::~Jit() = default;

absl::StatusOr<std::string> Jit::Compile(std::unique_ptr<JitModule> module, Form form) const {
  StartLlvm();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<llvm::TargetMachine> machine, MakeTargetMachine(target_));
  std::string errors;
  module->context->setDiagnosticHandler(std::make_unique<DiagnosticCollector>(&errors));
  llvm::Module& ir = *module->module;
  ir.setTargetTriple(kTriple);
  ir.setDataLayout(machine->createDataLayout());
  for (llvm::Function& function : ir) {
    if (function.isDeclaration()) continue;
    function.addFnAttr("target-cpu", target_.cpu);
    if (!target_.features.empty()) function.addFnAttr("target-features", target_.features);
    function.addFnAttr("prefer-vector-width", std::to_string(target_.VectorBits()));
    function.addFnAttr("min-legal-vector-width", std::to_string(target_.VectorBits()));
    function.addFnAttr("no-builtins");
    function.addFnAttr(llvm::Attribute::NoUnwind);
    function.setUWTableKind(llvm::UWTableKind::Async);  // debuggers and profilers walk through
  }
  std::string verifier_text;
  llvm::raw_string_ostream verifier_stream(verifier_text);
  if (llvm::verifyModule(ir, &verifier_stream)) {
    return InternalError("generated IR is malformed: ", verifier_stream.str());
  }
  if (form == Form::kLlvm) return TextOf(*module);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream stream(object);
  llvm::legacy::PassManager passes;
  const llvm::CodeGenFileType type =
      form == Form::kObject ? llvm::CodeGenFileType::ObjectFile : llvm::CodeGenFileType::AssemblyFile;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, type, /*DisableVerify=*/true)) {
    return InternalError("LLVM cannot write objects for ", target_.Fingerprint());
  }
  WEFT_RETURN_IF_ERROR(CheckReserve());  // the longest way without a look begins
  passes.run(ir);
  if (!errors.empty()) return InternalError("code generation failed: ", errors);
  return std::string(object.data(), object.size());
}

absl::StatusOr<std::unique_ptr<JitLibrary>> Jit::Load(std::span<const std::byte> object) const {
  if (object.size() < sizeof(llvm::ELF::Elf64_Ehdr) || std::memcmp(object.data(), llvm::ELF::ElfMagic, 4) != 0) {
    return UserErrorOf(absl::StatusCode::kDataLoss, "compiled object of ", object.size(), " bytes is not an ELF file");
  }
  llvm::ELF::Elf64_Ehdr header;
  std::memcpy(&header, object.data(), sizeof(header));
  if (header.e_machine != llvm::ELF::EM_X86_64 || header.e_type != llvm::ELF::ET_REL) {
    return UserErrorOf(absl::StatusCode::kDataLoss, "compiled object is not an x86-64 relocatable file");
  }
  const ForkWaits fork_waits;
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<JitSession> session, Session());
  llvm::orc::LLJIT& jit = *session->jit;
  auto dylib = jit.createJITDylib("library" + std::to_string(session->next_library.fetch_add(1)));
  if (!dylib) return FromLlvm(dylib.takeError(), "making room for a compiled object");
  auto impl = std::make_unique<JitLibrary::Impl>();
  impl->session = std::move(session);
  impl->dylib = &*dylib;
  dylib->addToLinkOrder(jit.getMainJITDylib());
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(
      llvm::StringRef(reinterpret_cast<const char*>(object.data()), object.size()), "weft-object");
  if (llvm::Error error = jit.addObjectFile(*dylib, std::move(buffer))) {
    return UserErrorOf(absl::StatusCode::kDataLoss,
                       "compiled object cannot be read: ", llvm::toString(std::move(error)));
  }
  return std::unique_ptr<JitLibrary>(new JitLibrary(std::move(impl)));
}

}  // namespace weft::cpu
