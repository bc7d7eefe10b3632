// The common part of the actions of `weft ckpt`: a context, a reader and its table of contents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/cli/command.h"
#include "src/cli/library.h"
#include "src/cli/npy.h"
#include "src/cli/tree.h"

namespace weft::cli {

using Reader = std::unique_ptr<weft_checkpoint_reader, Releases<&weft_checkpoint_reader_release>>;
using Tensor = std::unique_ptr<weft_tensor, Releases<&weft_tensor_release>>;

// One tensor's row of a table of contents.
struct Entry {
  std::string path;  // as the reader takes it
  std::string name;  // keys joined by ".", the same in every format
  std::string encoding;
  weft_dtype dtype = WEFT_F32;
  std::vector<int64_t> dims;
  uint64_t bytes = 0;  // in the file
  bool loadable = true;
  std::string Type() const { return TypeText(dtype, dims.data(), dims.size()); }
};

// A context and what went wrong with it.
struct Work {
  std::string problem;
  Context context;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }
  bool Start() { return Done(CreateWithoutCache(&context)); }
  bool Open(std::string_view path, Reader* reader, std::vector<Entry>* entries);
  bool Load(const Reader& reader, const std::string& path, Tensor* out);
};

// Their messages on stderr, and their exit statuses.
int Fail(const std::string& problem);
int Misuse(const std::string& text);
// Tells whether --only, if it was given, has the name.
bool IsWanted(const Arguments& arguments, const std::string& name);

int Convert(const Arguments& arguments);
int Cat(const Arguments& arguments);
int Repair(const Arguments& arguments);
int Prune(const Arguments& arguments);

}  // namespace weft::cli
