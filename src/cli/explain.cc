// `weft explain`: how two programs differ, in the words in which a context says why it compiled again.
#include <cstdio>

#include "src/cli/command.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

int Fail(const std::string& problem) {
  std::fprintf(stderr, "weft explain: %s\n", problem.c_str());
  return kFailed;
}

int Execute(const Arguments& arguments) {
  if (arguments.more.size() != 1) {
    std::fprintf(stderr, "weft explain: it takes two files; 'weft explain --help' says more\n");
    return kMisused;
  }
  const std::string before(arguments.parameter), now(arguments.more[0]);
  Context context;
  std::string problem = MessageOf(CreateWithoutCache(&context));
  if (!problem.empty()) return Fail(problem);
  weft_tree* made = nullptr;
  problem = MessageOf(weft_program_compare(context.get(), before.data(), before.size(), now.data(), now.size(), &made));
  if (!problem.empty()) return Fail(problem);
  const Tree tree(made);
  Fields report;
  if (!FieldsOf(made, WEFT_TREE_ROOT, &report, &problem)) return Fail(problem);
  if (arguments.has("--json")) {
    Print(report, true);
    return kDone;
  }
  std::printf("%s\n", TextIn(report, "text").c_str());
  const List& parts = ListIn(report, "parts");
  if (!parts.empty()) Print({{"parts", parts}}, false);
  if (const std::string hint = TextIn(report, "hint"); !hint.empty()) std::printf("%s\n", hint.c_str());
  return kDone;
}

const Registration kExplain(
    {.name = "explain",
     .summary = "what differs between two programs: Weft's text, StableHLO, functions, entries of the compile cache",
     .parameter = "BEFORE",
     .flags = {{"--json", "as one JSON object"}},
     .more = "NOW",
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
