// Compiles StableHLO texts by a plugin for devices that need not be there, as the backend compiles its own.
//
//   dump_compiled PLUGIN TOPOLOGY FILE...
//
// One line of JSON a file, in order, as soon as it is known: what the plugin tells of the executable, or what it said instead.
// The environment is libtpu's where the topology is a TPU's.
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "src/backends/pjrt/executable_stats.h"
#include "src/backends/pjrt/libtpu.h"
#include "src/backends/pjrt/program.h"
#include "src/backends/pjrt/topology.h"

namespace weft::pjrt {
namespace {

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "\"";
}

absl::StatusOr<ExecutableStats> Compile(const Plugin& plugin, const Topology& topology, std::string_view text) {
  const api::Program code = AsArgument(text);
  api::Compile compile{.topology = topology.get(), .program = &code};
  compile.options = CompileOptionBytes().data();
  compile.options_size = CompileOptionBytes().size();
  WEFT_RETURN_IF_ERROR(plugin.Call(api::Function::kCompile, &compile));
  ExecutableStats stats;
  AddStats(plugin, compile.executable, &stats);
  plugin.Destroy(api::Function::kExecutableDestroy, api::OfExecutable{.executable = compile.executable});
  return stats;
}

absl::Status Run(const char* path, const char* name, std::span<char* const> files) {
  PrepareLibtpu();
  WEFT_ASSIGN_OR_RETURN(const Plugin* const plugin, Plugin::Open(path));
  WEFT_ASSIGN_OR_RETURN(const CreateOptions none, CreateOptions::Parse(""));
  WEFT_ASSIGN_OR_RETURN(const auto topology, Topology::Create(*plugin, "", name, none));
  for (const char* file : files) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    if (!in) return UserError("cannot read ", file);
    const auto start = std::chrono::steady_clock::now();
    const auto stats = Compile(*plugin, *topology, text.str());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::cout << "{\"file\": " << Quoted(file) << ", \"seconds\": " << took.count() << ", ";
    if (stats.ok()) {
      std::cout << "\"flops\": " << stats->flops << ", \"bytes_accessed\": " << stats->bytes_accessed
                << ", \"temporary_bytes\": " << stats->temporary_bytes << ", \"code_bytes\": " << stats->code_bytes;
    } else {
      std::cout << "\"error\": " << Quoted(stats.status().message());
    }
    std::cout << "}" << std::endl;  // NOLINT(performance-avoid-endl): who waits for it may have to kill this process
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft::pjrt

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: dump_compiled PLUGIN TOPOLOGY FILE...\n";
    return 2;
  }
  const absl::Status status = weft::pjrt::Run(argv[1], argv[2], {argv + 3, argv + argc});
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
