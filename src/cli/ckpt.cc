// `weft ckpt`: what can be done with files of tensors, whoever's format they have: list, verify, compare, convert.
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "src/cli/command.h"
#include "src/cli/library.h"
#include "src/cli/npy.h"
#include "src/cli/show.h"

namespace weft::cli {
namespace {

using Reader = std::unique_ptr<weft_checkpoint_reader, Releases<&weft_checkpoint_reader_release>>;
using Tensor = std::unique_ptr<weft_tensor, Releases<&weft_tensor_release>>;
using Tree = std::unique_ptr<weft_tree, Releases<&weft_tree_release>>;

struct Format {
  std::string_view name, suffix;
  weft_file_format number;
};
constexpr Format kFormats[] = {{"weft", ".weft", WEFT_FORMAT_WEFT},
                               {"safetensors", ".safetensors", WEFT_FORMAT_SAFETENSORS},
                               {"npy", ".npy", WEFT_FORMAT_NPY},
                               {"npz", ".npz", WEFT_FORMAT_NPZ}};

// One tensor's row of a table of contents.
struct Entry {
  std::string path;  // as the reader takes it
  std::string name;  // keys joined by ".", the same in every format
  std::string encoding;
  weft_dtype dtype = WEFT_F32;
  std::vector<int64_t> dims;
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
  bool Start() {
    const weft_setting settings[] = {{"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
    weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
    options.settings = settings;
    options.setting_count = std::size(settings);
    weft_context* made = nullptr;
    if (!Done(weft_context_create(&options, &made))) return false;
    context.reset(made);
    return true;
  }
  bool Open(std::string_view path, Reader* reader, std::vector<Entry>* entries) {
    weft_checkpoint_reader* opened = nullptr;
    size_t count = 0;
    weft_open_options options = WEFT_OPEN_OPTIONS_INIT;
    options.verify = WEFT_VERIFY_ALL;
    if (!Done(weft_checkpoint_reader_open_with(context.get(), path.data(), path.size(), &options, &opened)))
      return false;
    reader->reset(opened);
    weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
    if (!Done(weft_checkpoint_reader_info(opened, &info))) return false;
    if (!Done(weft_checkpoint_reader_count(opened, &count))) return false;
    for (size_t i = 0; i < count; ++i) {
      weft_checkpoint_entry entry = WEFT_CHECKPOINT_ENTRY_INIT;
      if (!Done(weft_checkpoint_reader_entry(opened, i, &entry))) return false;
      Entry& row = entries->emplace_back();
      row.path.assign(entry.path, entry.path_length);
      row.name = NameOf(row.path, info.format);
      row.encoding.assign(entry.encoding, entry.encoding_length);
      row.dtype = entry.dtype;
      row.dims.assign(entry.dims, entry.dims + entry.rank);
      row.loadable = entry.loadable != 0;
    }
    return true;
  }
  // Paths of a checkpoint have "\\" before each "." of a key.
  static std::string NameOf(const std::string& path, weft_file_format format) {
    std::string name;
    for (size_t i = 0; i < path.size(); ++i) {
      if (format == WEFT_FORMAT_WEFT && path[i] == '\\' && i + 1 < path.size()) ++i;
      name += path[i];
    }
    return name;
  }
  bool Load(const Reader& reader, const std::string& path, Tensor* out) {
    weft_tensor* tensor = nullptr;
    if (!Done(weft_checkpoint_reader_load(reader.get(), path.data(), path.size(), nullptr, &tensor))) return false;
    out->reset(tensor);
    return true;
  }
  template <typename Element>
  bool Elements(const Tensor& tensor, std::vector<Element>* out) {
    uint64_t size = 0;
    if (!Done(weft_tensor_size(tensor.get(), &size))) return false;
    out->resize(size / sizeof(Element));
    return Done(weft_tensor_to_host(tensor.get(), out->data(), size));
  }
};

int Fail(const std::string& problem) {
  std::fprintf(stderr, "weft ckpt: %s\n", problem.c_str());
  return kFailed;
}
int Misuse(const std::string& text) {
  std::fprintf(stderr, "weft ckpt: %s; 'weft ckpt --help' says more\n", text.c_str());
  return kMisused;
}

bool IsWanted(const Arguments& arguments, const std::string& name) {
  const std::vector<std::string_view> globs = arguments.values("--only");
  return globs.empty() || std::ranges::any_of(globs, [&](std::string_view glob) {
           return fnmatch(std::string(glob).c_str(), name.c_str(), 0) == 0;
         });
}

int Ls(const Arguments& arguments) {
  Work work;
  Reader reader;
  std::vector<Entry> entries;
  if (!work.Start() || !work.Open(arguments.more[0], &reader, &entries)) return Fail(work.problem);
  List rows;
  for (const Entry& entry : entries) {
    if (!IsWanted(arguments, entry.name)) continue;
    Fields row = {{"path", entry.name}, {"type", entry.Type()}};
    if (!entry.encoding.empty()) row.emplace_back("encoding", entry.encoding);
    rows.push_back(std::move(row));
  }
  Print({{"tensors", std::move(rows)}}, arguments.has("--json"));
  return kDone;
}

// Reads every tensor; goes on behind one that is damaged.
int Verify(const Arguments& arguments) {
  Work work;
  Reader reader;
  std::vector<Entry> entries;
  if (!work.Start() || !work.Open(arguments.more[0], &reader, &entries)) return Fail(work.problem);
  List problems;
  int64_t good = 0, skipped = 0;
  for (const Entry& entry : entries) {
    Tensor tensor;
    if (!entry.loadable) {
      ++skipped;
    } else if (work.Load(reader, entry.path, &tensor)) {
      ++good;
    } else {
      problems.push_back(work.problem);
    }
  }
  const bool well = problems.empty();
  Fields report = {{"good", good}};
  if (skipped > 0) report.emplace_back("without_a_type", skipped);
  if (!well) report.emplace_back("problems", std::move(problems));
  Print(report, arguments.has("--json"));
  return well ? kDone : kFailed;
}

// How far two tensors of one type are apart: empty where every bit is the same.
bool Distance(Work& work, const Tensor& a, const Tensor& b, std::string* out) {
  std::vector<std::byte> bytes_a, bytes_b;
  if (!work.Elements(a, &bytes_a) || !work.Elements(b, &bytes_b)) return false;
  if (bytes_a == bytes_b) return out->clear(), true;
  weft_tensor *wide_a = nullptr, *wide_b = nullptr;
  if (!work.Done(weft_convert(work.context.get(), a.get(), WEFT_F64, &wide_a))) return false;
  const Tensor first(wide_a);
  if (!work.Done(weft_convert(work.context.get(), b.get(), WEFT_F64, &wide_b))) return false;
  const Tensor second(wide_b);
  std::vector<double> x, y;
  if (!work.Elements(first, &x) || !work.Elements(second, &y)) return false;
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double apart = std::abs(x[i] - y[i]);
    if (std::isnan(x[i]) != std::isnan(y[i])) most = HUGE_VAL;
    if (apart > most) most = apart;
  }
  char text[40];
  out->assign(text, std::to_chars(text, text + sizeof(text), most).ptr);
  return true;
}

int Diff(const Arguments& arguments) {
  Work work;
  Reader readers[2];
  std::vector<Entry> entries[2];
  if (!work.Start()) return Fail(work.problem);
  for (size_t i = 0; i < 2; ++i) {
    if (!work.Open(arguments.more[i], &readers[i], &entries[i])) return Fail(work.problem);
  }
  std::map<std::string, const Entry*> others;
  for (const Entry& entry : entries[1]) others.emplace(entry.name, &entry);
  List rows;
  for (const Entry& entry : entries[0]) {
    const auto found = others.find(entry.name);
    const Entry* other = found == others.end() ? nullptr : found->second;
    if (other != nullptr) others.erase(found);
    if (!IsWanted(arguments, entry.name)) continue;
    if (other == nullptr) {
      rows.push_back(Fields{{"path", entry.name}, {"what", "only in the first"}});
    } else if (entry.Type() != other->Type()) {
      rows.push_back(Fields{{"path", entry.name}, {"what", entry.Type() + " and " + other->Type()}});
    } else if (entry.loadable && other->loadable) {
      Tensor a, b;
      std::string apart;
      if (!work.Load(readers[0], entry.path, &a) || !work.Load(readers[1], other->path, &b) ||
          !Distance(work, a, b, &apart)) {
        return Fail(work.problem);
      }
      if (!apart.empty()) rows.push_back(Fields{{"path", entry.name}, {"what", "apart by at most " + apart}});
    }
  }
  for (const auto& [path, entry] : others) {
    if (IsWanted(arguments, path)) rows.push_back(Fields{{"path", path}, {"what", "only in the second"}});
  }
  const bool same = rows.empty();
  Print({{"differences", std::move(rows)}}, arguments.has("--json"));
  return same ? kDone : kFailed;
}

// The whole tree as it is, or the tensors that were asked for under their names.
bool LoadTree(Work& work, const Arguments& arguments, const Reader& reader, const std::vector<Entry>& entries,
              Tree* out) {
  weft_tree* made = nullptr;
  if (!arguments.has("--only")) {
    if (!work.Done(weft_checkpoint_reader_tree(reader.get(), nullptr, &made))) return false;
    return out->reset(made), true;
  }
  if (!work.Done(weft_tree_create(&made))) return false;
  out->reset(made);
  for (const Entry& entry : entries) {
    Tensor tensor;
    if (!IsWanted(arguments, entry.name)) continue;
    if (!work.Load(reader, entry.path, &tensor) ||
        !work.Done(
            weft_tree_add_tensor(made, WEFT_TREE_ROOT, entry.name.data(), entry.name.size(), tensor.get(), nullptr))) {
      return false;
    }
  }
  return true;
}

int Convert(const Arguments& arguments) {
  const std::string out(arguments.more[1]);
  const std::string_view named = arguments.value("--format", "");
  const Format* format = nullptr;
  for (const Format& f : kFormats) {
    if (named.empty() ? out.ends_with(f.suffix) : named == f.name) format = &f;
  }
  if (format == nullptr) {
    return Misuse(named.empty()
                      ? "what format is '" + out + "' to have? --format says it"
                      : "'" + std::string(named) + "' is no format that is written: weft, safetensors, npy, npz");
  }
  Work work;
  Reader reader;
  Tree tree;
  std::vector<Entry> entries;
  if (!work.Start() || !work.Open(arguments.more[0], &reader, &entries) ||
      !LoadTree(work, arguments, reader, entries, &tree)) {
    return Fail(work.problem);
  }
  weft_checkpoint_info info = WEFT_CHECKPOINT_INFO_INIT;
  weft_checkpoint_options options = WEFT_CHECKPOINT_OPTIONS_INIT;
  if (!work.Done(weft_checkpoint_reader_info(reader.get(), &info))) return Fail(work.problem);
  options.step = info.step;
  options.format = format->number;
  if (arguments.has("--tied-twice")) options.tied = WEFT_TIED_TWICE;
  if (!work.Done(weft_checkpoint_save(work.context.get(), out.data(), out.size(), tree.get(), &options, nullptr))) {
    return Fail(work.problem);
  }
  return kDone;
}

int Execute(const Arguments& arguments) {
  struct Action {
    std::string_view name;
    size_t files;
    int (*run)(const Arguments&);
  };
  constexpr Action kActions[] = {
      {"ls", 1, Ls}, {"show", 1, nullptr}, {"verify", 1, Verify}, {"diff", 2, Diff}, {"convert", 2, Convert}};
  const auto* action = std::ranges::find(kActions, arguments.parameter, &Action::name);
  if (action == std::end(kActions)) {
    return Misuse("there is no '" + std::string(arguments.parameter) + "'; there are ls, show, verify, diff, convert");
  }
  if (arguments.more.size() != action->files) {
    return Misuse(std::string(action->name) + " takes " + (action->files == 1 ? "one file" : "two files"));
  }
  if (action->run == nullptr) return ShowFile(std::string(arguments.more[0]), arguments.has("--json"), "weft ckpt");
  return action->run(arguments);
}

const Registration kCkpt(
    {.name = "ckpt",
     .summary = "files of tensors of any format: ls, show, verify FILE; diff A B; convert IN OUT",
     .parameter = "ACTION",
     .flags = {{"--only", "tensors whose names match, * standing for anything; may come more than once", "GLOB"},
               {"--format", "of what convert writes: weft, safetensors, npy, npz; else OUT's suffix says it", "NAME"},
               {"--tied-twice", "convert stores a tensor of two names twice where the format knows no aliases", ""},
               {"--json", "as one JSON object", ""}},
     .more = "FILE...",
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
