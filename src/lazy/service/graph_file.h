// The graphs that are launched, one record each at the end of a file: the options save_graphs and save_graphs_format.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/compiler/trace.h"
#include "src/ir/node.h"
#include "src/runtime/line_file.h"

namespace weft::lazy {

// A node a line, arguments first: "%3 = f32[32,32]{1,0} xla::relu(%2), location=train.c:7, ROOT=0".
std::string GraphLines(const compiler::Trace& trace);
// The same for Graphviz.
std::string GraphDot(const compiler::Trace& trace, std::string_view name);

// Thread rule: as LineFile's.
class GraphFile {
 public:
  enum class Format : uint8_t { kText, kDot, kStableHlo, kHlo };
  GraphFile(std::shared_ptr<LineFile> file, Format format, std::string precision)
      : file_(std::move(file)), format_(format), precision_(std::move(precision)) {}
  // Writes the graph that is about to be launched: `name` says why, `hash` is the program's key, `at` is the caller's position.
  void Write(const compiler::Trace& trace, std::string_view name, std::string_view hash, ir::Location at) const;

 private:
  const std::shared_ptr<LineFile> file_;
  const Format format_;
  const std::string precision_;  // of products, in StableHLO
};

}  // namespace weft::lazy
