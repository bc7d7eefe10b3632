// Golden texts of passes: what goes in, what must come out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/registry.h"
#include "src/passes/passes.h"

namespace weft::passes {

// The text after the pass, verified before and after; an error's text otherwise.
inline std::string After(absl::StatusOr<ir::Module> (*pass)(const ir::Module&, const PipelineOptions&),
                         std::string_view text, const PipelineOptions& options = {}) {
  auto module = ir::Parse(text, ops::FindOp);
  if (!module.ok()) return std::string(module.status().message());
  if (absl::Status status = ir::Verify(*module); !status.ok()) return std::string(status.message());
  auto out = pass(*module, options);
  if (!out.ok()) return std::string(out.status().message());
  if (absl::Status status = ir::Verify(*out); !status.ok()) return std::string(status.message());
  return ir::Print(*out);
}

// A function around lines, so that goldens show only what matters: Wrap("%0: tensor<f32>", "tensor<f32>", "lines", "%1").
inline std::string Wrap(std::string_view parameters, std::string_view results, std::string_view lines,
                        std::string_view returned) {
  std::string body;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    if (end > at) body.append("  ").append(lines.substr(at, end - at)).append("\n");
    at = end + 1;
  }
  return std::string("func @main(").append(parameters).append(") -> (").append(results).append(") {\n").append(body)
      .append("  return ").append(returned).append("\n}\n");
}

}  // namespace weft::passes
