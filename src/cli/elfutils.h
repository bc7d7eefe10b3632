// elfutils' libdw, opened at run time, so that the command starts where it is not installed.
#pragma once

#include <dlfcn.h>

#include <string>

#if __has_include(<elfutils/libdwfl.h>)
#include <elfutils/libdwfl.h>
#define WEFT_HAS_ELFUTILS 1
#else
#define WEFT_HAS_ELFUTILS 0
#endif

namespace weft::cli {

#if WEFT_HAS_ELFUTILS

// A function of libdw, by its own declaration.
#define WEFT_DW(name) decltype(&::name) name = Find<decltype(&::name)>(#name)

struct Elfutils {
  // Stays open.
  void* const handle = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
  bool whole = true;

  WEFT_DW(dwfl_begin);
  WEFT_DW(dwfl_end);
  WEFT_DW(dwfl_errmsg);
  WEFT_DW(dwfl_linux_proc_report);
  WEFT_DW(dwfl_report_end);
  WEFT_DW(dwfl_linux_proc_attach);
  WEFT_DW(dwfl_getthreads);
  WEFT_DW(dwfl_thread_tid);
  WEFT_DW(dwfl_thread_getframes);
  WEFT_DW(dwfl_frame_pc);
  WEFT_DW(dwfl_addrmodule);
  WEFT_DW(dwfl_module_info);
  WEFT_DW(dwfl_module_addrname);
  WEFT_DW(dwfl_module_getsrc);
  WEFT_DW(dwfl_lineinfo);
  WEFT_DW(dwfl_getmodules);
  WEFT_DW(dwfl_module_getsymtab);
  WEFT_DW(dwfl_module_getsym_info);
  WEFT_DW(dwfl_linux_proc_find_elf);
  WEFT_DW(dwfl_report_begin);
  WEFT_DW(dwfl_report_offline);
  WEFT_DW(dwfl_offline_section_address);
  WEFT_DW(dwfl_standard_find_debuginfo);

  bool IsThere(std::string* problem) const {
    if (handle == nullptr) {
      *problem =
          "elfutils' library libdw.so.1 is not installed (Debian's package libdw1), and it reads debug information";
    } else if (!whole) {
      *problem = "elfutils' library libdw.so.1 is too old";
    }
    return handle != nullptr && whole;
  }

 private:
  template <typename Function>
  Function Find(const char* name) {
    void* const found = handle == nullptr ? nullptr : dlsym(handle, name);
    whole = whole && found != nullptr;
    return reinterpret_cast<Function>(found);
  }
};
#undef WEFT_DW

#endif

}  // namespace weft::cli
