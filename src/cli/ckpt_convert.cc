// `weft ckpt convert` and `cat`: tensors of one file as another. The library copies them piece by piece; here it is said which, and
// how they are called.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "src/cli/ckpt.h"
#include "src/cli/progress.h"

namespace weft::cli {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

struct Format {
  std::string_view name, suffix;
  weft_file_format number;
};
constexpr Format kFormats[] = {{"weft", ".weft", WEFT_FORMAT_WEFT},
                               {"safetensors", ".safetensors", WEFT_FORMAT_SAFETENSORS},
                               {"npy", ".npy", WEFT_FORMAT_NPY},
                               {"npz", ".npz", WEFT_FORMAT_NPZ},
                               {"gguf", ".gguf", WEFT_FORMAT_GGUF}};

// "A=B" in two; false without the sign.
bool Split(std::string_view word, std::string_view* first, std::string_view* second) {
  const size_t at = word.find('=');
  if (at == std::string_view::npos) return false;
  *first = word.substr(0, at);
  *second = word.substr(at + 1);
  return true;
}

// "5GB", "64MiB", "1000": letters of bytes may be left out.
bool SizeOf(std::string_view text, uint64_t* out) {
  constexpr std::string_view kUnits = "kMGT";
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (error != std::errc() || *out == 0) return false;
  const bool binary = unit.ends_with("iB");
  if (binary || unit.ends_with("B")) unit.remove_suffix(binary ? 2 : 1);
  if (unit.empty()) return !binary;
  const size_t power = unit.size() == 1 ? kUnits.find(unit[0] == 'K' ? 'k' : unit[0]) : std::string_view::npos;
  if (power == std::string_view::npos) return false;
  for (size_t i = 0; i <= power; ++i) {
    if (__builtin_mul_overflow(*out, uint64_t{binary ? 1024u : 1000u}, out)) return false;
  }
  return true;
}

// A conversion as the words ask for it; `misuse` says what is wrong with them.
struct Plan {
  std::string out, misuse;
  weft_convert_options options = WEFT_CONVERT_OPTIONS_INIT;
  std::vector<std::pair<weft_dtype, weft_dtype>> dtypes;
  std::vector<std::pair<std::string_view, std::string_view>> renames;
  std::vector<std::string> names;  // of the tensors below
  std::vector<weft_convert_tensor> tensors;

  bool Read(const Arguments& arguments) { return Format_(arguments) && Shards(arguments) && Pairs(arguments); }

  bool Format_(const Arguments& arguments) {
    out = arguments.more[1];
    const std::string_view named = arguments.value("--format", "");
    std::string_view shown = out;
    if (shown.ends_with(std::string(kFormats[1].suffix) + std::string(kIndexSuffix))) {
      shown.remove_suffix(kIndexSuffix.size());
    }
    const auto found = std::ranges::find_if(
        kFormats, [&](const Format& f) { return named.empty() ? shown.ends_with(f.suffix) : named == f.name; });
    if (found == std::end(kFormats)) {
      misuse = named.empty()
                   ? "what format is '" + out + "' to have? --format says it"
                   : "'" + std::string(named) + "' is no format that is written: weft, safetensors, npy, npz, gguf";
      return false;
    }
    options.format = found->number;
    options.nest = arguments.has("--nest") ? 1 : 0;
    if (arguments.has("--tied-twice")) options.tied = WEFT_TIED_TWICE;
    if (arguments.has("--compress")) options.compress = WEFT_COMPRESS_ZSTD;
    if (arguments.has("--compress") && options.format != WEFT_FORMAT_WEFT) misuse = "--compress is for weft files";
    return misuse.empty();
  }

  bool Shards(const Arguments& arguments) {
    if (!arguments.has("--shard-size")) return true;
    const std::string_view size = arguments.value("--shard-size", "");
    if (!SizeOf(size, &options.shard_bytes)) {
      misuse = "--shard-size " + std::string(size) + " is no size; 5GB and 512MiB are";
    } else if (options.format != WEFT_FORMAT_SAFETENSORS) {
      misuse = "--shard-size is for safetensors";
    } else if (!out.ends_with(kIndexSuffix)) {
      out += kIndexSuffix;
    }
    return misuse.empty();
  }

  bool Pairs(const Arguments& arguments) {
    for (const std::string_view word : arguments.values("--dtype")) {
      std::string_view from, to;
      auto& [first, second] = dtypes.emplace_back();
      if (!Split(word, &from, &to) || !TypeOfName(from, &first) || !TypeOfName(to, &second)) {
        misuse = "--dtype " + std::string(word) + " does not name two types, as f32=bf16 does";
        return false;
      }
    }
    for (const std::string_view word : arguments.values("--rename")) {
      auto& [from, to] = renames.emplace_back();
      if (!Split(word, &from, &to) || from.empty() || from.ends_with('*') != to.ends_with('*')) {
        misuse = "--rename " + std::string(word) + " is not A=B, nor 'a.*=b.*'";
        return false;
      }
    }
    return true;
  }

  std::string NewName(const std::string& name) const {
    for (auto [from, to] : renames) {
      if (name == from) return std::string(to);
      if (!from.ends_with('*')) continue;
      from.remove_suffix(1);
      to.remove_suffix(1);
      if (name.starts_with(from)) return std::string(to) + name.substr(from.size());
    }
    return name;
  }

  // Without --only and --rename the file's tree stays, and only types change.
  void Choose(const Arguments& arguments, const std::vector<Entry>& entries) {
    options.rest = !arguments.has("--only") && renames.empty() ? 1 : 0;
    names.reserve(entries.size());  // the tensors point into it
    for (const Entry& entry : entries) {
      if (!IsWanted(arguments, entry.name)) continue;
      const auto type = std::ranges::find(dtypes, entry.dtype, &std::pair<weft_dtype, weft_dtype>::first);
      if (options.rest == 1 && type == dtypes.end()) continue;
      weft_convert_tensor& tensor = tensors.emplace_back();
      tensor = {};
      tensor.path = entry.path.data();
      tensor.path_length = entry.path.size();
      if (type != dtypes.end()) tensor.dtype = type->second;
      if (options.rest == 1) continue;
      const std::string& name = names.emplace_back(NewName(entry.name));
      tensor.name = name.data();
      tensor.name_length = name.size();
    }
    options.tensors = tensors.data();
    options.tensor_count = tensors.size();
  }
};

bool Run(Work& work, std::string_view in, Plan& plan, const char* what) {
  Progress progress(what);
  plan.options.progress = &Progress::Told;
  plan.options.progress_user_data = &progress;
  return work.Done(weft_checkpoint_convert(work.context.get(), in.data(), in.size(), plan.out.data(), plan.out.size(),
                                           &plan.options));
}

bool CopyOut(const std::string& path, std::string* problem) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string block(1 << 20, '\0');
  ssize_t got = file < 0 ? -1 : 1;
  while (got > 0) {
    got = read(file, block.data(), block.size());
    if (got < 0 && errno == EINTR)
      got = 1, block.clear(), block.resize(1 << 20);
    else if (got > 0 && std::fwrite(block.data(), 1, static_cast<size_t>(got), stdout) != static_cast<size_t>(got))
      break;
  }
  if (got < 0) *problem = path + ": " + std::strerror(errno);
  if (file >= 0) close(file);
  return problem->empty();  // main looks whether stdout took everything
}

// A folder of this process alone that goes with what is in it.
struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    std::error_code ignored;
    path = std::filesystem::temp_directory_path(ignored).string() + "/weft-cat-XXXXXX";
    if (mkdtemp(path.data()) == nullptr) path.clear();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

int Convert(const Arguments& arguments) {
  Plan plan;
  if (!plan.Read(arguments)) return Misuse(plan.misuse);
  Work work;
  Reader reader;
  std::vector<Entry> entries;
  if (!work.Start() || !work.Open(arguments.more[0], &reader, &entries)) return Fail(work.problem);
  plan.Choose(arguments, entries);
  if (plan.options.rest == 0 && plan.tensors.empty()) return Fail("no tensor of the file matches --only");
  reader.reset();
  if (!Run(work, arguments.more[0], plan, "converting")) return Fail(work.problem);
  if (arguments.has("--json")) Print({{"file", plan.out}}, true);
  return kDone;
}

int Cat(const Arguments& arguments) {
  const bool to_stdout = arguments.more.size() == 2;
  if (to_stdout && isatty(STDOUT_FILENO) == 1) {
    return Misuse("cat writes an .npy file, which is nothing for a terminal; name a file behind the tensor");
  }
  Work work;
  Reader reader;
  std::vector<Entry> entries;
  if (!work.Start() || !work.Open(arguments.more[0], &reader, &entries)) return Fail(work.problem);
  const auto found = std::ranges::find_if(
      entries, [&](const Entry& entry) { return entry.name == arguments.more[1] || entry.path == arguments.more[1]; });
  weft_convert_tensor tensor = {};
  // The library says what is nearest where there is no such name.
  const std::string path(found == entries.end() ? arguments.more[1] : std::string_view(found->path));
  if (found == entries.end()) {
    size_t index = 0;
    if (!work.Done(weft_checkpoint_reader_find(reader.get(), path.data(), path.size(), &index))) {
      return Fail(work.problem);
    }
  }
  tensor.path = path.data();
  tensor.path_length = path.size();
  TemporaryFolder folder;
  if (to_stdout && folder.path.empty())
    return Fail("no temporary folder can be made: " + std::string(std::strerror(errno)));
  Plan plan;
  plan.out = to_stdout ? folder.path + "/tensor.npy" : std::string(arguments.more[2]);
  plan.options.format = WEFT_FORMAT_NPY;
  plan.options.durable = to_stdout ? -1 : 0;
  plan.options.tensors = &tensor;
  plan.options.tensor_count = 1;
  if (!Run(work, arguments.more[0], plan, "reading")) return Fail(work.problem);
  if (to_stdout && !CopyOut(plan.out, &work.problem)) return Fail(work.problem);
  return kDone;
}

}  // namespace weft::cli
