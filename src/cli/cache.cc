// `weft cache`: the compiled programs on disk: where they are, what there is, what is damaged, why one did not serve, what goes.
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "src/cli/command.h"
#include "src/cli/library.h"
#include "src/cli/tree.h"

namespace weft::cli {
namespace {

constexpr int64_t kDayNs = int64_t{86400} * 1'000'000'000;
constexpr size_t kDigits = 16;  // of a name, as the log and `weft profile` have them

// A cache that is being looked at; `problem` says what ended it.
struct Look {
  std::string problem;
  Context context;
  Cache cache;
  Fields listing;

  bool Done(weft_error* error) {
    problem = MessageOf(error);
    return problem.empty();
  }
  // A command that only looks makes no folder.
  bool Open(const Arguments& arguments, bool writes) {
    const std::string_view folder = arguments.value("--dir", "");
    const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, writes ? "write" : "read", WEFT_STRLEN},
                                     {"cache_dir", WEFT_STRLEN, folder.data(), folder.size()}};
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    options.settings = settings;
    options.setting_count = folder.empty() ? 1 : 2;
    weft_context* made = nullptr;
    weft_cache* opened = nullptr;
    if (!Done(weft_context_create(&options, &made))) return false;
    context.reset(made);
    if (!Done(weft_context_cache(made, &opened))) return false;
    cache.reset(opened);
    return true;
  }
  bool List(bool verify) {
    weft_tree* made = nullptr;
    if (!Done(weft_cache_list(cache.get(), verify ? 1 : 0, &made))) return false;
    const Tree tree(made);
    return FieldsOf(made, WEFT_TREE_ROOT, &listing, &problem);
  }
};

int Fail(const std::string& problem) {
  std::fprintf(stderr, "weft cache: %s\n", problem.c_str());
  return kFailed;
}
int Misuse(const std::string& text) {
  std::fprintf(stderr, "weft cache: %s; 'weft cache --help' says more\n", text.c_str());
  return kMisused;
}

const Fields& FieldsIn(const Value& value) { return std::get<Fields>(value.data); }

int Path(Look& look, const Arguments& arguments) {
  if (!look.List(false)) return Fail(look.problem);
  List rows;
  for (const Value& folder : ListIn(look.listing, "folders")) {
    const Fields& fields = FieldsIn(folder);
    Fields row = {{"path", TextIn(fields, "path")}, {"use", TextIn(fields, "use")}};
    if (const std::string why = TextIn(fields, "why"); !why.empty()) row.emplace_back("why", why);
    rows.push_back(std::move(row));
  }
  Print({{"folders", std::move(rows)}}, arguments.has("--json"));
  return kDone;
}

int Ls(Look& look, const Arguments& arguments) {
  if (!look.List(false)) return Fail(look.problem);
  List rows;
  for (const Value& entry : ListIn(look.listing, "entries")) {
    const Fields& fields = FieldsIn(entry);
    Fields row = {{"name", TextIn(fields, "name").substr(0, arguments.has("--json") ? std::string::npos : kDigits)},
                  {"used", TimeText(NumberIn(fields, "used_unix_ns"))},
                  {"bytes", NumberIn(fields, "bytes")}};
    if (const std::string problem = TextIn(fields, "problem"); !problem.empty()) {
      row.emplace_back("problem", problem);
    } else {
      row.emplace_back("backend", TextIn(fields, "backend"));
      row.emplace_back("operations", NumberIn(fields, "operations"));
      row.emplace_back("compile_microseconds", NumberIn(fields, "compile_microseconds"));
    }
    rows.push_back(std::move(row));
  }
  Print({{"entries", std::move(rows)}}, arguments.has("--json"));
  return kDone;
}

int Stat(Look& look, const Arguments& arguments) {
  if (!look.List(false)) return Fail(look.problem);
  int64_t bytes = 0, microseconds = 0, problems = 0;
  const List& entries = ListIn(look.listing, "entries");
  for (const Value& entry : entries) {
    bytes += NumberIn(FieldsIn(entry), "bytes");
    microseconds += NumberIn(FieldsIn(entry), "compile_microseconds");
    problems += TextIn(FieldsIn(entry), "problem").empty() ? 0 : 1;
  }
  Print({{"folders", ListIn(look.listing, "folders")},
         {"entries", static_cast<int64_t>(entries.size())},
         {"bytes", bytes},
         {"compile_microseconds", microseconds},
         {"unreadable", problems}},
        arguments.has("--json"));
  return kDone;
}

int Verify(Look& look, const Arguments& arguments) {
  if (!look.List(true)) return Fail(look.problem);
  int64_t good = 0;
  List problems;
  for (const Value& entry : ListIn(look.listing, "entries")) {
    const std::string problem = TextIn(FieldsIn(entry), "problem");
    if (problem.empty()) {
      ++good;
    } else {
      problems.push_back(TextIn(FieldsIn(entry), "name") + ": " + problem);
    }
  }
  for (const Value& folder : ListIn(look.listing, "folders")) {
    const std::string why = TextIn(FieldsIn(folder), "why");
    if (!why.empty() && TextIn(FieldsIn(folder), "use") == "none") problems.push_back("not used: " + why);
  }
  Fields report = {{"good", good}};
  const bool well = problems.empty();
  if (!well) report.emplace_back("problems", std::move(problems));
  Print(report, arguments.has("--json"));
  return well ? kDone : kFailed;
}

int Explain(Look& look, const Arguments& arguments) {
  const std::string_view name = arguments.more.empty() ? "" : arguments.more[0];
  weft_tree* made = nullptr;
  if (!look.Done(weft_cache_explain(look.cache.get(), name.data(), name.size(), &made))) return Fail(look.problem);
  const Tree tree(made);
  Fields report;
  if (!FieldsOf(made, WEFT_TREE_ROOT, &report, &look.problem)) return Fail(look.problem);
  Print(report, arguments.has("--json"));
  return kDone;
}

bool Number(const Arguments& arguments, std::string_view flag, uint64_t* out) {
  if (!arguments.has(flag)) return true;
  const std::string_view text = arguments.value(flag, "");
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

int Remove(Look& look, const Arguments& arguments) {
  uint64_t most = arguments.parameter == "clear" ? 0 : UINT64_MAX, days = 0, entries = 0, bytes = 0;
  constexpr uint64_t kMostDays = 100'000;
  if (!Number(arguments, "--max-bytes", &most) || !Number(arguments, "--unused", &days) || days > kMostDays) {
    return Misuse("--max-bytes and --unused take whole numbers");
  }
  const bool wants = arguments.has("--max-bytes") || arguments.has("--unused");
  if (arguments.parameter == "prune" && !wants) return Misuse("prune wants --max-bytes or --unused");
  if (arguments.parameter == "clear" && wants) return Misuse("clear removes everything; prune takes limits");
  const int64_t unused = arguments.has("--unused") ? static_cast<int64_t>(days) * kDayNs : -1;
  if (!look.Done(weft_cache_prune(look.cache.get(), most, unused, &entries, &bytes))) return Fail(look.problem);
  Print({{"removed", static_cast<int64_t>(entries)}, {"bytes", static_cast<int64_t>(bytes)}}, arguments.has("--json"));
  return kDone;
}

int Execute(const Arguments& arguments) {
  struct Action {
    std::string_view name;
    size_t words;  // at most
    bool writes;
    int (*run)(Look&, const Arguments&);
  };
  constexpr Action kActions[] = {{"path", 0, false, Path},       {"ls", 0, false, Ls},
                                 {"stat", 0, false, Stat},       {"verify", 0, false, Verify},
                                 {"explain", 1, false, Explain}, {"prune", 0, true, Remove},
                                 {"clear", 0, true, Remove}};
  const auto* action = std::ranges::find(kActions, arguments.parameter, &Action::name);
  if (action == std::end(kActions)) {
    return Misuse("there is no '" + std::string(arguments.parameter) +
                  "'; there are path, ls, stat, verify, explain, prune, clear");
  }
  if (arguments.more.size() > action->words) {
    return Misuse(std::string(action->name) + (action->words == 0 ? " takes no name" : " takes one entry's name"));
  }
  Look look;
  if (!look.Open(arguments, action->writes)) return Fail(look.problem);
  return action->run(look, arguments);
}

const Registration kCache(
    {.name = "cache",
     .summary = "compiled programs on disk: path, ls, stat, verify; explain [NAME], why an entry did not serve for the "
                "nearest other; prune, clear",
     .parameter = "ACTION",
     .flags = {{"--dir", "the folder, or several parted by \":\"; else the option cache_dir", "DIR"},
               {"--max-bytes", "prune leaves at most so many, of what was used last", "BYTES"},
               {"--unused", "prune removes what nobody used for so long", "DAYS"},
               {"--json", "as one JSON object", ""}},
     .more = "NAME",
     .choices = {"path", "ls", "stat", "verify", "explain", "prune", "clear"},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
