// The library as the command sees it: which file it is, and handles that release themselves.
#pragma once

#include <memory>
#include <string>

#include "src/cli/report.h"
#include "weft.h"

namespace weft::cli {

template <auto release>
struct Releases {
  template <typename Handle>
  void operator()(Handle* handle) const {
    release(handle);
  }
};
using Context = std::unique_ptr<weft_context, Releases<&weft_context_release>>;
using Device = std::unique_ptr<weft_device, Releases<&weft_device_release>>;
using Cache = std::unique_ptr<weft_cache, Releases<&weft_cache_release>>;
using Blob = std::unique_ptr<weft_blob, Releases<&weft_blob_release>>;

// Empty for success, else the message; releases the error.
std::string MessageOf(weft_error* error);

// A context that keeps nothing on disk, for commands that only read files.
weft_error* CreateWithoutCache(Context* out);

// release, abi, library: the file that answers, which is the first thing to know when there are two.
Fields VersionFields();

}  // namespace weft::cli
