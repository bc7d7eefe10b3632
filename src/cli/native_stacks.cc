// See native_stacks.h.
#include "src/cli/native_stacks.h"

#include <cxxabi.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <memory>

#include "src/cli/elfutils.h"

namespace weft::cli {

#if !WEFT_HAS_ELFUTILS

bool ReadStacks(pid_t, NativeStacks*, std::string* problem) {
  *problem = "this command was built without elfutils (Debian's libdw-dev), which reads stacks";
  return false;
}

#else

namespace {

constexpr size_t kMostFrames = 256;

struct Reading {
  const Elfutils& dw;
  Dwfl* session;
  NativeStacks* out;
  pid_t process;
};

std::string Demangled(const char* name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string out = status == 0 && text != nullptr ? text : name;
  std::free(text);
  return out;
}

std::string Hex(uint64_t number) {
  char text[24];
  return "0x" + std::string(text, std::to_chars(text, text + sizeof text, number, 16).ptr);
}

NativeFrame FrameAt(const Reading& reading, Dwarf_Addr address) {
  const Elfutils& dw = reading.dw;
  Dwfl_Module* const module = dw.dwfl_addrmodule(reading.session, address);
  if (module == nullptr) return {.function = "[generated code] " + Hex(address), .location = Hex(address)};
  Dwarf_Addr begin = 0;
  const char* const file = dw.dwfl_module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
  std::string_view base = file == nullptr ? "?" : file;
  base = base.substr(base.rfind('/') + 1);
  NativeFrame frame;
  frame.location = std::string(base) + "+" + Hex(address - begin);
  const char* const name = dw.dwfl_module_addrname(module, address);
  frame.function = name == nullptr ? frame.location : Demangled(name);
  if (Dwfl_Line* const line = dw.dwfl_module_getsrc(module, address)) {
    int number = 0;
    const char* const source = dw.dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
    if (source != nullptr) frame.location = std::string(source) + ":" + std::to_string(number);
  }
  return frame;
}

struct Walk {
  const Reading& reading;
  NativeThread* thread;
};

int OnFrame(Dwfl_Frame* frame, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  Dwarf_Addr address = 0;
  bool exact = false;
  if (!walk.reading.dw.dwfl_frame_pc(frame, &address, &exact)) return DWARF_CB_ABORT;
  // A caller's address is behind its call.
  walk.thread->frames.push_back(FrameAt(walk.reading, exact ? address : address - 1));
  return walk.thread->frames.size() < kMostFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

int OnThread(Dwfl_Thread* thread, void* data) {
  auto& reading = *static_cast<Reading*>(data);
  NativeThread& made = reading.out->threads.emplace_back();
  made.id = reading.dw.dwfl_thread_tid(thread);
  std::ifstream name("/proc/" + std::to_string(reading.process) + "/task/" + std::to_string(made.id) + "/comm");
  std::getline(name, made.name);
  Walk walk = {reading, &made};
  errno = 0;
  if (reading.dw.dwfl_thread_getframes(thread, OnFrame, &walk) < 0 && made.frames.empty()) {
    made.problem = errno != 0 ? std::strerror(errno) : "its stack cannot be walked";
    if (errno == EPERM) made.problem = "EPERM";
  }
  return DWARF_CB_OK;
}

// The address of a name that a module defines, for each name; those that are found are written.
void FindIn(const Elfutils& dw, Dwfl_Module* module, std::initializer_list<std::pair<const char*, uint64_t*> > names) {
  const int count = dw.dwfl_module_getsymtab(module);
  for (int i = 0; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr address = 0;
    const char* const found = dw.dwfl_module_getsym_info(module, i, &symbol, &address, nullptr, nullptr, nullptr);
    if (found == nullptr || symbol.st_shndx == 0) continue;
    for (const auto& [name, out] : names) {
      if (std::strcmp(found, name) == 0) *out = address;
    }
  }
}

int OnModule(Dwfl_Module* module, void**, const char* name, Dwarf_Addr, void* data) {
  auto& reading = *static_cast<Reading*>(data);
  NativeStacks& out = *reading.out;
  if (out.table == 0 && std::strstr(name, "libweft") != nullptr) {
    FindIn(reading.dw, module, {{"weft_thread_table", &out.table}});
  }
  std::error_code none;
  const std::string program = std::filesystem::read_symlink("/proc/" + std::to_string(reading.process) + "/exe", none);
  if (out.python.runtime == 0 && (name == program || std::strstr(name, "libpython") != nullptr)) {
    FindIn(reading.dw, module, {{"_PyRuntime", &out.python.runtime}, {"Py_Version", &out.python.version}});
  }
  return DWARF_CB_OK;
}

std::string Refused(pid_t process) {
  return "process " + std::to_string(process) +
         " does not let itself be traced: the kernel allows that to root, and to its owner where "
         "/proc/sys/kernel/yama/ptrace_scope is 0 (as root: sysctl kernel.yama.ptrace_scope=0, until the next start); in a "
         "container the capability SYS_PTRACE is needed";
}

}  // namespace

bool ReadStacks(pid_t process, NativeStacks* out, std::string* problem) {
  std::error_code none;
  if (!std::filesystem::exists("/proc/" + std::to_string(process), none)) {
    return *problem = "there is no process " + std::to_string(process), false;
  }
  const Elfutils dw;
  if (!dw.IsThere(problem)) return false;
  static char* debug_path = nullptr;
  const Dwfl_Callbacks callbacks = {.find_elf = dw.dwfl_linux_proc_find_elf,
                                    .find_debuginfo = dw.dwfl_standard_find_debuginfo,
                                    .section_address = nullptr,
                                    .debuginfo_path = &debug_path};
  const std::unique_ptr<Dwfl, decltype(dw.dwfl_end)> session(dw.dwfl_begin(&callbacks), dw.dwfl_end);
  if (session == nullptr) return *problem = "elfutils cannot begin", false;
  const int reported = dw.dwfl_linux_proc_report(session.get(), process);
  if (reported != 0 || dw.dwfl_report_end(session.get(), nullptr, nullptr) != 0) {
    const bool refused = reported == EPERM || reported == EACCES;
    *problem =
        refused ? Refused(process) : "its modules cannot be read: " + std::string(strerror(std::max(0, reported)));
    return false;
  }
  const int attached = dw.dwfl_linux_proc_attach(session.get(), process, false);
  if (attached != 0) {
    const bool refused = attached == EPERM || attached == EACCES;
    *problem = refused
                   ? Refused(process)
                   : "it cannot be looked at: " + std::string(attached > 0 ? strerror(attached) : dw.dwfl_errmsg(-1));
    return false;
  }
  Reading reading = {dw, session.get(), out, process};
  dw.dwfl_getthreads(session.get(), OnThread, &reading);
  const auto refused = [](const NativeThread& thread) { return thread.problem == "EPERM"; };
  if (out->threads.empty() || std::ranges::all_of(out->threads, refused)) {
    return *problem = Refused(process), false;
  }
  dw.dwfl_getmodules(session.get(), OnModule, &reading, 0);
  return true;
}

#endif

}  // namespace weft::cli
