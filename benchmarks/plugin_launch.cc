// What a launch on a PJRT plugin costs on top of the plugin: evaluating what is recorded, until it is there, beside the same executable
// with the same arguments called through the C API alone, in turns. Its own functions stand in the plugin's table before Weft sees
// it: they count copies and compilations, and keep what a launch was called with.
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>

#include "../src/backends/pjrt/api.h"  // layouts and numbers alone
#include "bench_util.h"
#include "weft.h"
#include "weft_fluent.h"

namespace {

namespace api = weft::pjrt::api;

constexpr char kHelp[] =
    "usage: plugin_launch [options]\n"
    "  --json         one JSON array instead of lines\n"
    "  --quick        few samples\n"
    "  --plugin PATH  of the plugin; else WEFT_PLUGIN\n"
    "  --mesh AXES    a part of each value on each of so many devices: d=4\n"
    "  --help         this\n";

// Microseconds a launch may take longer than the plugin needs, by itself, an operation and an output; on a mesh, for each device.
constexpr double kLaunch = 20, kOperation = 0.2, kOutput = 1;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "plugin_launch: %s\n", what);
  std::exit(1);
}
void Must(weft_error* error) {
  if (error != nullptr) Fail(weft_error_message(error, nullptr));
}

// --- The plugin's table ----------------------------------------------------------------------------------------------------

using Entry = api::Error* (*)(void*);
void** table = nullptr;
Entry upload, execute, compile, load;
std::atomic<int> copies{0}, compilations{0};

// The last launch, as the plugin saw it.
struct Launch {
  api::Execute call;
  api::ExecuteOptions options;
  std::vector<int64_t> kept;
  std::vector<std::vector<api::Buffer*>> arguments;  // of each device
  std::vector<uint32_t> words;                       // the last argument's, if there are any
  std::vector<api::Device*> devices;                 // that got them
  api::Client* client = nullptr;
  size_t outputs = 0;
} last;

void** At(api::Function function) { return &table[static_cast<size_t>(function)]; }
template <typename Arguments>
void Call(Entry entry, Arguments* arguments) {
  arguments->head.struct_size = sizeof(Arguments);
  if (entry(arguments) != nullptr) Fail("the plugin refuses what it did for Weft");
}

api::Error* Upload(void* arguments) {
  const auto& call = *static_cast<api::BufferFromHostBuffer*>(arguments);
  ++copies;
  last.client = call.client;
  const auto* const data = static_cast<const uint32_t*>(call.data);
  if (call.type == api::ElementType::kU32) {
    last.words.assign(data, data + call.dims[0]);
    last.devices.push_back(call.device);
  }
  return upload(arguments);
}
api::Error* Execute(void* arguments) {
  const auto& call = *static_cast<api::Execute*>(arguments);
  last.call = call;
  last.options = *call.options;
  last.kept.assign(call.options->non_donatable_input_indices,
                   call.options->non_donatable_input_indices + call.options->num_non_donatable_input_indices);
  last.arguments.clear();
  for (size_t d = 0; d < call.num_devices; ++d) {
    last.arguments.emplace_back(call.argument_lists[d], call.argument_lists[d] + call.num_args);
  }
  return execute(arguments);
}
api::Error* Compile(void* arguments) {
  ++compilations;
  return compile(arguments);
}
api::Error* Load(void* arguments) {
  ++compilations;
  return load(arguments);
}

void Enter(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  const auto get = reinterpret_cast<api::Table* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get == nullptr) Fail("the library is no PJRT plugin");
  api::Table* const all = get();
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(all) / page * page;
  const size_t size = reinterpret_cast<uintptr_t>(all) + all->head.struct_size - begin;
  if (mprotect(reinterpret_cast<void*>(begin), size, PROT_READ | PROT_WRITE) != 0) Fail("the plugin's table cannot be written");
  table = all->functions;
  const auto exchange = [](api::Function function, Entry ours, Entry* theirs) {
    *theirs = reinterpret_cast<Entry>(*At(function));
    *At(function) = reinterpret_cast<void*>(ours);
  };
  exchange(api::Function::kClientBufferFromHostBuffer, Upload, &upload);
  exchange(api::Function::kLoadedExecutableExecute, Execute, &execute);
  exchange(api::Function::kClientCompile, Compile, &compile);
  exchange(api::Function::kExecutableDeserializeAndLoad, Load, &load);
}

void Await(api::Event* event) {
  api::OfEvent wait;
  wait.event = event;
  Call(reinterpret_cast<Entry>(*At(api::Function::kEventAwait)), &wait);
  Call(reinterpret_cast<Entry>(*At(api::Function::kEventDestroy)), &wait);
}
void Destroy(api::Buffer* buffer) {
  api::OfBuffer destroy;
  destroy.buffer = buffer;
  Call(reinterpret_cast<Entry>(*At(api::Function::kBufferDestroy)), &destroy);
}

// Copies the words of the last launch to the device once more.
api::Buffer* CopyWords(api::Device* device) {
  const auto count = static_cast<int64_t>(last.words.size());
  api::BufferFromHostBuffer copy;
  copy.client = last.client;
  copy.data = last.words.data();
  copy.type = api::ElementType::kU32;
  copy.dims = &count;
  copy.num_dims = 1;
  copy.device = device;
  Call(upload, &copy);
  Await(copy.done_with_host_buffer);
  return copy.buffer;
}

// Seconds of the last launch once more, without Weft: its words are copied, it runs, and is waited for.
double Bare() {
  const size_t devices = last.arguments.size();
  std::vector<std::vector<api::Buffer*>> outputs(devices, std::vector<api::Buffer*>(last.outputs));
  std::vector<api::Buffer* const*> arguments(devices);
  std::vector<api::Buffer**> results(devices);
  std::vector<api::Event*> complete(devices);
  std::vector<api::Buffer*> words;
  const bench::Clock::time_point start = bench::Clock::now();
  for (size_t d = 0; d < last.devices.size(); ++d) {
    words.push_back(CopyWords(last.devices[d]));
    last.arguments[d].back() = words.back();
  }
  for (size_t d = 0; d < devices; ++d) {
    arguments[d] = last.arguments[d].data();
    results[d] = outputs[d].data();
  }
  api::Execute call = last.call;
  last.options.non_donatable_input_indices = last.kept.data();
  call.options = &last.options;
  call.argument_lists = arguments.data();
  call.output_lists = results.data();
  call.device_complete_events = complete.data();
  Call(execute, &call);
  for (api::Event* event : complete) Await(event);
  for (api::Buffer* buffer : words) Destroy(buffer);
  const double seconds = bench::Since(start);
  for (const std::vector<api::Buffer*>& list : outputs) {
    for (api::Buffer* output : list) Destroy(output);
  }
  return seconds;
}

// --- Programs --------------------------------------------------------------------------------------------------------------

struct Program {
  const char* name;
  size_t operations, outputs;  // outputs: each is the sum of so many operations, one of them by a number
};

std::vector<weft_tensor*> Record(weft_context* ctx, weft_tensor* x, const Program& program, double number) {
  wf_scope* const s = wf_begin(ctx);
  std::vector<weft_tensor*> all;
  for (size_t k = 0; k < program.outputs; ++k) {
    weft_tensor* y = wf_mul(s, x, wf_scalar(s, WEFT_F32, number + static_cast<double>(k)));
    for (size_t i = 1; i < program.operations / program.outputs; ++i) y = wf_add(s, y, x);
    all.push_back(wf_keep(s, y));
  }
  Must(wf_end(s));
  return all;
}

// Seconds until they are there.
double Evaluate(weft_context* ctx, const std::vector<weft_tensor*>& tensors) {
  weft_event* done = nullptr;
  const bench::Clock::time_point start = bench::Clock::now();
  Must(weft_eval(ctx, tensors.data(), tensors.size(), &done));
  Must(weft_event_wait(done, -1));
  const double seconds = bench::Since(start);
  weft_event_release(done);
  return seconds;
}

bool Measure(weft_context* ctx, weft_tensor* x, const Program& program, int times, std::vector<bench::Row>* rows) {
  std::vector<double> more, weft, bare;
  int copied = 0, compiled = 0;
  for (int i = -20; i < times; ++i) {
    std::vector<weft_tensor*> tensors = Record(ctx, x, program, i);
    copies = compilations = 0;
    last.words.clear();
    last.devices.clear();
    last.outputs = tensors.size();
    const double ours = Evaluate(ctx, tensors);
    const int copied_now = copies, compiled_now = compilations;
    const double theirs = Bare();
    for (weft_tensor* tensor : tensors) weft_tensor_release(tensor);
    if (i < 0) continue;
    weft.push_back(ours);
    bare.push_back(theirs);
    more.push_back(ours - theirs);
    copied = std::max(copied, copied_now);
    compiled += compiled_now;
  }
  const auto operations = static_cast<double>(program.operations), outputs = static_cast<double>(program.outputs),
             devices = static_cast<double>(last.arguments.size());
  const double limit = devices * (kLaunch + kOperation * operations + kOutput * outputs),
               microseconds = bench::Median(more) * 1e6;
  const std::string name = program.name;
  rows->push_back({name + ": on top of the plugin", microseconds, "us", limit, microseconds / limit,
                   {{"weft", bench::Median(weft) * 1e6}, {"plugin", bench::Median(bare) * 1e6}}});
  rows->push_back({name + ": copies to the device a launch", static_cast<double>(copied), "", 0, 0, {}});
  rows->push_back({name + ": compilations", static_cast<double>(compiled), "", 0, 0, {}});
  return microseconds <= limit && copied <= static_cast<int>(last.arguments.size()) && compiled == 0;
}

struct Choice {
  std::string plugin, mesh;
};
// Ends the program where the command line is of no use.
Choice Chosen(const bench::Options& options) {
  const char* const set = std::getenv("WEFT_PLUGIN");
  Choice choice;
  if (set != nullptr) choice.plugin = set;
  bool wrong = false;
  for (size_t i = 0; i < options.rest.size(); ++i) {
    const bool more = i + 1 < options.rest.size();
    if (options.rest[i] == "--plugin" && more) {
      choice.plugin = options.rest[++i];
    } else if (options.rest[i] == "--mesh" && more) {
      choice.mesh = options.rest[++i];
    } else {
      wrong = true;
    }
  }
  if (options.help || wrong) {
    std::fputs(kHelp, options.help ? stdout : stderr);
    std::exit(options.help ? 0 : 2);
  }
  if (choice.plugin.empty()) Fail("which plugin? --plugin PATH, or WEFT_PLUGIN");
  std::error_code error;
  choice.plugin = std::filesystem::canonical(choice.plugin, error).string();
  if (error) Fail("there is no such plugin");
  return choice;
}

// Eight numbers; on a mesh, a part of them on each device.
weft_tensor* Numbers(weft_context* ctx, const std::string& axes, weft_mesh** mesh) {
  const float host[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t dims[] = {8};
  weft_tensor* x = nullptr;
  if (axes.empty()) {
    Must(weft_tensor_from_host(ctx, nullptr, WEFT_F32, dims, 1, host, sizeof host, &x));
    return x;
  }
  Must(weft_mesh_create(ctx, nullptr, 0, axes.data(), axes.size(), mesh));
  Must(weft_context_set_mesh(ctx, *mesh));
  std::string cut;  // along all axes
  for (size_t at = 0; at < axes.size();) {
    const size_t end = std::min(axes.find(',', at), axes.size());
    cut += (cut.empty() ? "" : "+") + axes.substr(at, std::min(axes.find('=', at), end) - at);
    at = end + 1;
  }
  Must(weft_tensor_from_host_sharded(*mesh, cut.data(), cut.size(), WEFT_F32, dims, 1, host, sizeof host, &x));
  return x;
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::Parse(argc, argv);
  const Choice choice = Chosen(options);
  Enter(choice.plugin);
  const weft_setting settings[] = {{"platform", WEFT_STRLEN, "pjrt", WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, choice.plugin.c_str(), WEFT_STRLEN},
                                   {"cache_mode", WEFT_STRLEN, "off", WEFT_STRLEN}};
  weft_context_options context = WEFT_CONTEXT_OPTIONS_INIT;
  context.settings = settings;
  context.setting_count = std::size(settings);
  weft_context* ctx = nullptr;
  Must(weft_context_create(&context, &ctx));
  weft_mesh* mesh = nullptr;
  weft_tensor* const x = Numbers(ctx, choice.mesh, &mesh);
  std::vector<bench::Row> rows;
  bool holds = true;
  for (const Program& program :
       {Program{"1 operation", 1, 1}, {"100 operations", 100, 1}, {"400 operations", 400, 1}, {"64 outputs", 64, 64}}) {
    holds = Measure(ctx, x, program, options.quick ? 100 : 1'000, &rows) && holds;
  }
  bench::Print(rows, options);
  weft_tensor_release(x);
  weft_mesh_release(mesh);
  weft_context_release(ctx);
  return holds ? 0 : 1;
}
