// The part of the PJRT C API that a client needs: names, numbers and layouts as OpenXLA's pjrt_c_api.h fixes them (version 0.114;
// 64-bit machines). Structs only grow at their ends; a plugin says how long its own are, and Plugin (plugin.h) reads nothing
// behind that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::pjrt::api {

// Objects of the plugin's, known by address alone.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Buffer;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct Topology;

// Every struct begins with these two.
struct Head {
  size_t struct_size = 0;
  void* extension_start = nullptr;
};

// An extension of the table, in a list that begins at the table's head: which one, then what it has.
struct Extension {
  size_t struct_size = 0;
  int type = 0;
  Extension* next = nullptr;
};

// The table that GetPjrtApi returns: head, version, then functions by number. All take a pointer to their arguments' struct and
// return an error to be destroyed or null, but for kErrorDestroy and kErrorMessage, which return nothing.
struct Version {
  Head head;
  int major = 0;
  int minor = 0;
};
struct Table {
  Head head;
  Version version;
  void* functions[1];  // as many as head.struct_size says
};

enum class Function : size_t {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kErrorGetCode = 2,
  kPluginInitialize = 3,
  kPluginAttributes = 4,
  kEventDestroy = 5,
  kEventError = 7,
  kEventAwait = 8,
  kEventOnReady = 9,
  kClientCreate = 10,
  kClientDestroy = 11,
  kClientPlatformName = 12,
  kClientPlatformVersion = 14,
  kClientAddressableDevices = 16,
  kClientCompile = 20,
  kClientBufferFromHostBuffer = 22,
  kDeviceDescriptionId = 23,
  kDeviceDescriptionAttributes = 25,
  kDeviceDescriptionKind = 26,
  kDeviceGetDescription = 29,
  kDeviceMemoryStats = 34,
  kExecutableDestroy = 40,
  kExecutableNumOutputs = 44,
  kExecutableSizeOfGeneratedCode = 45,
  kExecutableGetCostAnalysis = 46,
  kExecutableSerialize = 49,
  kLoadedExecutableDestroy = 50,
  kLoadedExecutableGetExecutable = 51,
  kLoadedExecutableAddressableDevices = 52,
  kLoadedExecutableExecute = 55,
  kExecutableDeserializeAndLoad = 56,
  kBufferDestroy = 58,
  kBufferIsDeleted = 68,
  kBufferCopyToDevice = 69,
  kBufferToHostBuffer = 70,
  kBufferReadyEvent = 72,
  kTopologyDescriptionCreate = 82,
  kTopologyDescriptionDestroy = 83,
  kTopologyDescriptionPlatformName = 84,
  kTopologyDescriptionPlatformVersion = 85,
  kTopologyDescriptionGetDeviceDescriptions = 86,
  kCompile = 89,
  kExecutableOutputElementTypes = 90,
  kExecutableOutputDimensions = 91,
  kClientTopologyDescription = 95,
  kExecutableGetCompiledMemoryStats = 96,
  kBufferCopyRawToHost = 100,
};

// PJRT_Buffer_Type.
enum class ElementType : uint32_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
};

// PJRT_HostBufferSemantics.
enum class HostBuffer : uint32_t {
  kImmutableOnlyDuringCall = 0,
  kImmutableUntilTransferCompletes = 1,
  kImmutableZeroCopy = 2,
};

// A named value: a plugin's attribute or an option of a client.
struct NamedValue {
  enum class Kind : uint32_t { kString = 0, kInt64 = 1, kInt64List = 2, kFloat = 3, kBool = 4 };
  Head head;
  const char* name = nullptr;
  size_t name_size = 0;
  Kind kind = Kind::kString;
  union {
    const char* string;
    int64_t integer;
    const int64_t* integers;
    float number;
    bool flag;
  };
  size_t value_size = 0;  // of a string in bytes, of a list in elements; else 1
};
static_assert(offsetof(NamedValue, value_size) == 48);

struct Tiled {
  Head head;
  const int64_t* minor_to_major = nullptr;
  size_t minor_to_major_size = 0;
  const int64_t* tile_dims = nullptr;
  const size_t* tile_dim_sizes = nullptr;
  size_t num_tiles = 0;
};
struct MemoryLayout {
  Head head;
  Tiled tiled;  // of a union with strides, which are shorter
  uint32_t type = 0;
};
static_assert(offsetof(MemoryLayout, type) == 72);

// --- Arguments -------------------------------------------------------------------------------------------------------------

struct ErrorDestroy {
  Head head;
  Error* error = nullptr;
};
struct ErrorMessage {
  Head head;
  const Error* error = nullptr;
  const char* message = nullptr;
  size_t message_size = 0;
};
struct ErrorGetCode {
  Head head;
  const Error* error = nullptr;
  uint32_t code = 0;  // absl's
};
struct PluginInitialize {
  Head head;
};
struct PluginAttributes {
  Head head;
  const NamedValue* attributes = nullptr;  // the plugin's
  size_t num_attributes = 0;
};
struct OfEvent {  // Destroy, Error, Await
  Head head;
  Event* event = nullptr;
};
struct EventOnReady {
  Head head;
  Event* event = nullptr;
  void (*callback)(Error* error, void* user) = nullptr;  // the error is the callback's
  void* user = nullptr;
};
struct ClientCreate {
  Head head;
  const NamedValue* options = nullptr;
  size_t num_options = 0;
  void* kv_get = nullptr;
  void* kv_get_user = nullptr;
  void* kv_put = nullptr;
  void* kv_put_user = nullptr;
  Client* client = nullptr;
  void* kv_try_get = nullptr;
  void* kv_try_get_user = nullptr;
};
struct ClientDestroy {
  Head head;
  Client* client = nullptr;
};
struct ClientText {  // PlatformName, PlatformVersion
  Head head;
  Client* client = nullptr;
  const char* text = nullptr;
  size_t size = 0;
};
struct ClientDevices {
  Head head;
  Client* client = nullptr;
  Device* const* devices = nullptr;
  size_t num_devices = 0;
};
struct Program {
  Head head;
  const char* code = nullptr;
  size_t code_size = 0;
  const char* format = nullptr;
  size_t format_size = 0;
};
struct ClientCompile {
  Head head;
  Client* client = nullptr;
  const Program* program = nullptr;
  const char* options = nullptr;
  size_t options_size = 0;
  LoadedExecutable* executable = nullptr;
};
struct ClientTopology {
  Head head;
  Client* client = nullptr;
  Topology* topology = nullptr;  // the client's
};
struct TopologyCreate {
  Head head;
  const char* name = nullptr;
  size_t name_size = 0;
  const NamedValue* options = nullptr;
  size_t num_options = 0;
  Topology* topology = nullptr;
};
struct OfTopology {  // Destroy
  Head head;
  Topology* topology = nullptr;
};
struct TopologyText {  // PlatformName, PlatformVersion
  Head head;
  Topology* topology = nullptr;
  const char* text = nullptr;
  size_t size = 0;
};
struct TopologyDevices {
  Head head;
  Topology* topology = nullptr;
  DeviceDescription* const* descriptions = nullptr;
  size_t num_descriptions = 0;
};
struct Compile {
  Head head;
  Topology* topology = nullptr;
  const Program* program = nullptr;
  const char* options = nullptr;
  size_t options_size = 0;
  Client* client = nullptr;  // may be null
  Executable* executable = nullptr;
};
static_assert(sizeof(Compile) == 64);
struct BufferFromHostBuffer {
  Head head;
  Client* client = nullptr;
  const void* data = nullptr;
  ElementType type = ElementType::kInvalid;
  const int64_t* dims = nullptr;
  size_t num_dims = 0;
  const int64_t* byte_strides = nullptr;
  size_t num_byte_strides = 0;
  HostBuffer semantics = HostBuffer::kImmutableOnlyDuringCall;
  Device* device = nullptr;
  Memory* memory = nullptr;
  MemoryLayout* device_layout = nullptr;
  Event* done_with_host_buffer = nullptr;
  Buffer* buffer = nullptr;
};
static_assert(sizeof(BufferFromHostBuffer) == 120);
struct DeviceGetDescription {
  Head head;
  Device* device = nullptr;
  DeviceDescription* description = nullptr;
};
struct DescriptionNumber {  // Id, ProcessIndex
  Head head;
  DeviceDescription* description = nullptr;
  int number = -1;  // until the plugin has written it
};
struct DescriptionAttributes {
  Head head;
  DeviceDescription* description = nullptr;
  size_t num_attributes = 0;
  const NamedValue* attributes = nullptr;  // the description's
};
struct DescriptionKind {
  Head head;
  DeviceDescription* description = nullptr;
  const char* kind = nullptr;
  size_t size = 0;
};
struct Statistic {
  int64_t value = 0;
  bool is_set = false;
};
struct DeviceMemoryStats {
  Head head;
  Device* device = nullptr;
  int64_t bytes_in_use = 0;
  Statistic peak_bytes_in_use, num_allocs, largest_alloc_size, bytes_limit, bytes_reserved, peak_bytes_reserved,
      bytes_reservable_limit, largest_free_block_bytes, pool_bytes, peak_pool_bytes, peak_allocated_bytes;
};
static_assert(offsetof(DeviceMemoryStats, bytes_limit) == 80);
struct OfExecutable {  // Destroy
  Head head;
  Executable* executable = nullptr;
};
struct OfLoadedExecutable {  // Destroy
  Head head;
  LoadedExecutable* executable = nullptr;
};
struct ExecutableNumber {  // NumOutputs, SizeOfGeneratedCode
  Head head;
  Executable* executable = nullptr;
  int64_t number = -1;  // until the plugin has written it
};
struct LoadedDevices {
  Head head;
  LoadedExecutable* executable = nullptr;
  Device* const* devices = nullptr;
  size_t num_devices = 0;
};
struct CostAnalysis {
  Head head;
  Executable* executable = nullptr;
  size_t num_properties = 0;
  const NamedValue* properties = nullptr;  // the executable's
};
struct GetExecutable {
  Head head;
  LoadedExecutable* loaded = nullptr;
  Executable* executable = nullptr;
};
struct ExecutableSerialize {
  Head head;
  Executable* executable = nullptr;
  const char* bytes = nullptr;
  size_t size = 0;
  SerializedExecutable* owner = nullptr;
  void (*destroy)(SerializedExecutable* owner) = nullptr;
};
struct DeserializeAndLoad {
  Head head;
  Client* client = nullptr;
  const char* bytes = nullptr;
  size_t size = 0;
  LoadedExecutable* executable = nullptr;
  const char* options = nullptr;  // in place of those that the program was compiled with
  size_t options_size = 0;
  void* load_options = nullptr;
};
struct OutputElementTypes {
  Head head;
  Executable* executable = nullptr;
  ElementType* types = nullptr;
  size_t num_types = 0;
};
struct OutputDimensions {
  Head head;
  Executable* executable = nullptr;
  size_t num_outputs = 0;
  const int64_t* dims = nullptr;
  const size_t* ranks = nullptr;
};
struct CompiledMemoryStats {
  Head head;
  Executable* executable = nullptr;
  int64_t generated_code = 0, arguments = 0, outputs = 0, aliases = 0, temporaries = 0, host_generated_code = 0,
          host_arguments = 0, host_outputs = 0, host_aliases = 0, host_temporaries = 0, peak = 0, total = 0,
          total_allocations = 0, indefinite_allocations = 0, peak_unpadded_heap = 0;
};
static_assert(sizeof(CompiledMemoryStats) == 144);
struct ExecuteOptions {
  Head head;
  void* send_callbacks = nullptr;
  void* recv_callbacks = nullptr;
  size_t num_send_ops = 0;
  size_t num_recv_ops = 0;
  int launch_id = 0;
  const int64_t* non_donatable_input_indices = nullptr;
  size_t num_non_donatable_input_indices = 0;
  void* context = nullptr;
  const char* call_location = nullptr;
  size_t num_tasks = 0;
  int* task_ids = nullptr;
  int64_t* incarnation_ids = nullptr;
  void* multi_slice_config = nullptr;
  bool use_major_to_minor_data_layout_for_callbacks = false;
  void* hlo_output_callbacks = nullptr;
  size_t num_hlo_output_callbacks = 0;
};
static_assert(sizeof(ExecuteOptions) == 144);
struct Execute {
  Head head;
  LoadedExecutable* executable = nullptr;
  ExecuteOptions* options = nullptr;
  Buffer* const* const* argument_lists = nullptr;
  size_t num_devices = 0;
  size_t num_args = 0;
  Buffer** const* output_lists = nullptr;
  Event** device_complete_events = nullptr;
  Device* execute_device = nullptr;
};
static_assert(sizeof(Execute) == 80);
struct OfBuffer {  // Destroy
  Head head;
  Buffer* buffer = nullptr;
};
struct BufferIsDeleted {
  Head head;
  Buffer* buffer = nullptr;
  bool is_deleted = false;
};
struct CopyToDevice {
  Head head;
  Buffer* buffer = nullptr;
  Device* device = nullptr;
  Buffer* copy = nullptr;
};
struct ToHostBuffer {
  Head head;
  Buffer* source = nullptr;
  MemoryLayout* host_layout = nullptr;
  void* destination = nullptr;
  size_t size = 0;
  Event* event = nullptr;
};
// PJRT_Buffer_CopyRawToHost: bytes as the device has them.
struct CopyRawToHost {
  Head head;
  Buffer* buffer = nullptr;
  void* destination = nullptr;
  int64_t offset = 0;
  int64_t size = 0;
  Event* event = nullptr;
};
struct ReadyEvent {
  Head head;
  Buffer* buffer = nullptr;
  Event* event = nullptr;
};

}  // namespace weft::pjrt::api
