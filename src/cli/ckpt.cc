// `weft ckpt`: what can be done with files of tensors, whoever's format they have. Here: list, verify, compare.
#include "src/cli/ckpt.h"

#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "src/cli/progress.h"
#include "src/cli/show.h"

namespace weft::cli {
namespace {

// Paths of a checkpoint have "\\" before each "." of a key.
std::string NameOf(const std::string& path, weft_file_format format) {
  std::string name;
  for (size_t i = 0; i < path.size(); ++i) {
    if (format == WEFT_FORMAT_WEFT && path[i] == '\\' && i + 1 < path.size()) ++i;
    name += path[i];
  }
  return name;
}

template <typename Element>
bool Elements(Work& work, const Tensor& tensor, std::vector<Element>* out) {
  uint64_t size = 0;
  if (!work.Done(weft_tensor_size(tensor.get(), &size))) return false;
  out->resize(size / sizeof(Element));
  return work.Done(weft_tensor_to_host(tensor.get(), out->data(), size));
}

}  // namespace

bool Work::Open(std::string_view path, Reader* reader, std::vector<Entry>* entries) {
  weft_checkpoint_reader* opened = nullptr;
  size_t count = 0;
  weft_open_options options = WEFT_OPEN_OPTIONS_INIT;
  options.verify = WEFT_VERIFY_ALL;
  if (!Done(weft_checkpoint_reader_open_with(context.get(), path.data(), path.size(), &options, &opened))) return false;
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
    row.bytes = entry.size_bytes;
    row.loadable = entry.loadable != 0;
  }
  return true;
}

bool Work::Load(const Reader& reader, const std::string& path, Tensor* out) {
  weft_tensor* tensor = nullptr;
  if (!Done(weft_checkpoint_reader_load(reader.get(), path.data(), path.size(), nullptr, &tensor))) return false;
  out->reset(tensor);
  return true;
}

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

namespace {

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
  uint64_t done = 0, total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  Progress progress("verifying");
  for (const Entry& entry : entries) {
    Tensor tensor;
    progress.Tell(done += entry.bytes, total);
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
  if (!Elements(work, a, &bytes_a) || !Elements(work, b, &bytes_b)) return false;
  if (bytes_a == bytes_b) return out->clear(), true;
  weft_tensor *wide_a = nullptr, *wide_b = nullptr;
  if (!work.Done(weft_convert(work.context.get(), a.get(), WEFT_F64, &wide_a))) return false;
  const Tensor first(wide_a);
  if (!work.Done(weft_convert(work.context.get(), b.get(), WEFT_F64, &wide_b))) return false;
  const Tensor second(wide_b);
  std::vector<double> x, y;
  if (!Elements(work, first, &x) || !Elements(work, second, &y)) return false;
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
  uint64_t done = 0, total = 0;
  for (const Entry& entry : entries[0]) total += entry.bytes;
  Progress progress("comparing");
  std::map<std::string, const Entry*> others;
  for (const Entry& entry : entries[1]) others.emplace(entry.name, &entry);
  List rows;
  for (const Entry& entry : entries[0]) {
    const auto found = others.find(entry.name);
    const Entry* other = found == others.end() ? nullptr : found->second;
    if (other != nullptr) others.erase(found);
    progress.Tell(done += entry.bytes, total);
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

int Execute(const Arguments& arguments) {
  struct Action {
    std::string_view name, files;  // what it takes
    size_t least, most;            // of them
    int (*run)(const Arguments&);
  };
  constexpr Action kActions[] = {{"ls", "one file", 1, 1, Ls},
                                 {"show", "one file", 1, 1, nullptr},
                                 {"verify", "one file", 1, 1, Verify},
                                 {"diff", "two files", 2, 2, Diff},
                                 {"convert", "two files", 2, 2, Convert},
                                 {"repair", "two files, the damaged one and a new one", 2, 2, Repair},
                                 {"cat", "a file, a tensor's name and perhaps a new file", 2, 3, Cat},
                                 {"prune", "the pattern of files, such as 'run/step-{step}.weft'", 1, 1, Prune}};
  const auto* action = std::ranges::find(kActions, arguments.parameter, &Action::name);
  if (action == std::end(kActions)) {
    std::string names;
    for (const Action& known : kActions) names += (names.empty() ? "" : ", ") + std::string(known.name);
    return Misuse("there is no '" + std::string(arguments.parameter) + "'; there are " + names);
  }
  if (arguments.more.size() < action->least || arguments.more.size() > action->most) {
    return Misuse(std::string(action->name) + " takes " + std::string(action->files));
  }
  if (action->run == nullptr) return ShowFile(std::string(arguments.more[0]), arguments.has("--json"), "weft ckpt");
  return action->run(arguments);
}

const Registration kCkpt(
    {.name = "ckpt",
     .summary = "files of tensors of any format: ls, show, verify FILE; diff A B; convert IN OUT; repair IN OUT; "
                "cat FILE NAME [OUT.npy]; prune PATTERN",
     .parameter = "ACTION",
     .flags = {{"--only", "tensors whose names match, * standing for anything; may come more than once", "GLOB"},
               {"--format", "of what convert writes: weft, safetensors, npy, npz, gguf; else OUT's suffix says it",
                "NAME"},
               {"--dtype", "convert turns floats of one type into another, f32=bf16; may come more than once",
                "FROM=TO"},
               {"--rename", "convert calls tensor A B, and with 'a.*=b.*' all that begin so; may come more than once",
                "A=B"},
               {"--nest", "convert splits names at each \".\" into dicts of a .weft file", ""},
               {"--compress", "convert writes a .weft file whose tensors of 64 KiB or more are compressed", ""},
               {"--shard-size", "convert writes safetensors of at most so many bytes each, and their index", "SIZE"},
               {"--tied-twice", "convert stores a tensor of two names twice where the format knows no aliases", ""},
               {"--keep-last", "prune keeps the files of so many last steps", "N"},
               {"--keep-every", "prune keeps the files of steps that are multiples, too", "STEPS"},
               {"--dry-run", "prune says what it would remove", ""},
               {"--json", "as one JSON object", ""}},
     .more = "FILE...",
     .choices = {"ls", "show", "verify", "diff", "convert", "repair", "cat", "prune"},
     .execute = Execute});

}  // namespace
}  // namespace weft::cli
