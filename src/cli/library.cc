// See library.h.
#include "src/cli/library.h"

#include <dlfcn.h>

namespace weft::cli {

std::string MessageOf(weft_error* error) {
  if (error == nullptr) return "";
  std::string message = weft_error_message(error, nullptr);
  weft_error_release(error);
  return message;
}

weft_error* CreateWithoutCache(Context* out) {
  const weft_setting off = {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  options.settings = &off;
  options.setting_count = 1;
  weft_context* made = nullptr;
  weft_error* const error = weft_context_create(&options, &made);
  out->reset(made);
  return error;
}

Fields VersionFields() {
  const uint32_t abi = weft_abi_version();
  Dl_info info = {};
  const bool found = dladdr(reinterpret_cast<const void*>(&weft_abi_version), &info) != 0 && info.dli_fname != nullptr;
  return {{"release", weft_release_version()},
          {"abi", std::to_string(abi >> 16) + "." + std::to_string(abi & 0xFFFF)},
          {"library", found ? info.dli_fname : "unknown"}};
}

}  // namespace weft::cli
