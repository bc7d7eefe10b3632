# The layers (one static library per folder) and libweft.so.1 made of them.
#
# weft_layer(name folder...) gathers *.cc below the folders. A folder that is empty so far still gives a
# target, so that layers can be filled in any order. Files for newer instruction sets say so in their
# names and are reached only behind a run-time check: *_avx2.cc and *_avx512.cc (x86-64-v3 and -v4),
# *_avx512bf16.cc, *_amx.cc. Such a file must keep everything in an anonymous namespace: an inline function compiled there
# and picked by the linker for the whole library would crash older machines.

set(WEFT_LAYERS "")
set(weft_empty "${PROJECT_BINARY_DIR}/generated/empty.cc")
if(NOT EXISTS "${weft_empty}")
  file(WRITE "${weft_empty}" "// A layer without files yet.\n")
endif()

# Reading headers and instantiating what is in them is most of the time that a file takes, so those that many files include
# are compiled once: for the layers, and with what tests add for tests. The preset dev has none, and so finds an include that
# is missing.
if(WEFT_PCH)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/generated/pch.cc" CONTENT "")
  set(WEFT_PCH_HEADERS <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <cstdint>
    <cstring> <deque> <functional> <limits> <map> <memory> <mutex> <new> <numeric> <optional> <set> <span> <string>
    <string_view> <thread> <utility> <variant> <vector>
    <absl/cleanup/cleanup.h> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h>
    <absl/container/inlined_vector.h> <absl/functional/function_ref.h> <absl/status/status.h> <absl/status/statusor.h>
    <absl/strings/ascii.h> <absl/strings/cord.h> <absl/strings/match.h> <absl/strings/numbers.h>
    <absl/strings/str_cat.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
    "${PROJECT_SOURCE_DIR}/src/backends/backend.h" "${PROJECT_SOURCE_DIR}/src/ir/scalar.h"
    "${PROJECT_SOURCE_DIR}/src/ops/build.h" "${PROJECT_SOURCE_DIR}/src/ops/registry.h"
    "${PROJECT_SOURCE_DIR}/src/runtime/thread_pool.h")
  foreach(pch weft_pch weft_pch_small)
    add_library(${pch} OBJECT "${PROJECT_BINARY_DIR}/generated/pch.cc")
    target_link_libraries(${pch} PUBLIC weft_flags weft_absl)
    target_precompile_headers(${pch} PRIVATE ${WEFT_PCH_HEADERS})
  endforeach()
  target_compile_options(weft_pch_small PRIVATE $<$<CONFIG:Release>:-Os>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A tenth of the time goes into collecting garbage that fits into memory.
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=100 --param ggc-min-heapsize=1000000>")
  endif()
endif()

function(weft_layer name)
  set(files "")
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE found CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cc")
    weft_generated_sources(made "${folder}")
    list(APPEND files ${found} ${made})
  endforeach()
  foreach(file IN LISTS files)
    if(file MATCHES "_avx2\\.cc$")
      set_source_files_properties("${file}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-mbmi;-mbmi2")
    elseif(file MATCHES "_avx512(bf16)?\\.cc$")
      set(options "-mavx2;-mfma;-mf16c;-mbmi;-mbmi2;-mavx512f;-mavx512dq;-mavx512bw;-mavx512vl;-mprefer-vector-width=512")
      if(file MATCHES "bf16\\.cc$")
        list(APPEND options -mavx512bf16)
      endif()
      set_source_files_properties("${file}" PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "${options}")
    endif()
  endforeach()
  list(APPEND files "${weft_empty}")
  add_library(${name} STATIC ${files})
  target_link_libraries(${name} PUBLIC weft_flags weft_absl)
  set(pch weft_pch)
  if(name IN_LIST WEFT_SMALL)
    set(pch weft_pch_small)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Os>)
  endif()
  if(WEFT_PCH AND NOT name IN_LIST WEFT_WITH_TYPES)
    target_precompile_headers(${name} REUSE_FROM ${pch})
  endif()
  set(WEFT_LAYERS "${WEFT_LAYERS};${name}" PARENT_SCOPE)
endfunction()

# Types of the exported functions are kept for abidiff; the library that is installed is stripped.
set(WEFT_WITH_TYPES "")
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT WEFT_SANITIZE)
  set(WEFT_WITH_TYPES weft_c_api)
endif()

# Rules of operations are many, and few of them run in every step; a text is read and a function mapped once, a file waits for the
# disk, a plugin is called once for each launch. Made small, these layers take 1.7 MB less of the library. What records the usual
# layers of a network is made fast all the same: 0.1 MB, and an operation that is recorded for the first time takes a tenth less;
# and so are loops over the bytes of files.
set(WEFT_SMALL "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(WEFT_SMALL weft_ops weft_stablehlo weft_transforms weft_serialization weft_backends_pjrt)
endif()
set(WEFT_FAST axes build call promotion reducer registry
  elementwise/add elementwise/compare elementwise/convert elementwise/divide elementwise/erf elementwise/exponential
  elementwise/log elementwise/logistic elementwise/maximum elementwise/minimum elementwise/multiply elementwise/negate
  elementwise/rsqrt elementwise/select elementwise/sqrt elementwise/square elementwise/subtract elementwise/tanh
  linalg/dot_general linalg/matmul
  nn/cross_entropy nn/embedding nn/gelu nn/layer_norm nn/linear nn/log_softmax nn/relu nn/scaled_dot_product_attention nn/softmax
  reduce/max reduce/mean reduce/reduce reduce/sum reduce/var reduce/variance
  shape/broadcast_in_dim shape/broadcast_to shape/concatenate shape/reshape shape/slice shape/transpose)
list(TRANSFORM WEFT_FAST PREPEND "src/ops/")
list(APPEND WEFT_FAST serialization/checksum serialization/file_map serialization/interchange/convert
  serialization/interchange/gguf_blocks)
list(TRANSFORM WEFT_FAST PREPEND "${PROJECT_SOURCE_DIR}/")
list(TRANSFORM WEFT_FAST APPEND ".cc")
foreach(file IN LISTS WEFT_FAST)
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "${file}, which is made fast, is not there")
  endif()
endforeach()
if(WEFT_SMALL AND CMAKE_BUILD_TYPE STREQUAL "Release")
  set_source_files_properties(${WEFT_FAST} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS -O2)
endif()

weft_layer(weft_runtime src/runtime)
weft_layer(weft_linalg src/linalg)
weft_layer(weft_data src/data)
weft_layer(weft_distributed src/distributed)
weft_layer(weft_ir src/ir)
weft_layer(weft_ops src/ops)
weft_layer(weft_stablehlo src/stablehlo)
weft_layer(weft_autodiff src/autodiff)
weft_layer(weft_transforms src/transforms)
weft_layer(weft_passes src/passes)
weft_layer(weft_backends_custom_call src/backends/custom_call)
weft_layer(weft_backends_reference src/backends/reference)
weft_layer(weft_backends_cpu src/backends/cpu)
weft_layer(weft_backends_pjrt src/backends/pjrt)
weft_layer(weft_serialization serialization)
weft_layer(weft_compiler src/compiler)
weft_layer(weft_lazy src/lazy)
weft_layer(weft_c_api src/c_api)
# The interface's own files stand in src/backends itself, not in a backend's folder.
file(GLOB weft_backend_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/backends/*.cc")
target_sources(weft_compiler PRIVATE ${weft_backend_files})

# weft_api_json gives the description out: it is compressed here, again whenever it has changed, and taken in by the assembler,
# which no one else tells of the file.
set(weft_description "${PROJECT_SOURCE_DIR}/include/c_api/weft_api.json")
set(weft_description_script "${PROJECT_SOURCE_DIR}/scripts/cmake/description.py")
set(weft_description_packed "${PROJECT_BINARY_DIR}/generated/description.z")
set(weft_description_size "${PROJECT_BINARY_DIR}/generated/description_size.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${weft_description}" "${weft_description_script}")
execute_process(COMMAND "${Python3_EXECUTABLE}" "${weft_description_script}" "${weft_description}"
  "${weft_description_packed}" "${weft_description_size}" COMMAND_ERROR_IS_FATAL ANY)
set_source_files_properties("${PROJECT_SOURCE_DIR}/src/c_api/description.cc" PROPERTIES
  COMPILE_DEFINITIONS "WEFT_DESCRIPTION=\"${weft_description_packed}\""
  OBJECT_DEPENDS "${weft_description_packed};${weft_description_size}")
target_link_libraries(weft_c_api PUBLIC weft_zlib)

target_link_libraries(weft_linalg PUBLIC weft_lapack)
target_link_libraries(weft_ops PUBLIC weft_linalg)
target_link_libraries(weft_backends_cpu PUBLIC weft_llvm)
target_link_libraries(weft_backends_custom_call PUBLIC weft_ffi)
target_link_libraries(weft_data PUBLIC weft_zlib)
target_link_libraries(weft_serialization PUBLIC weft_capnp weft_zstd weft_zlib PRIVATE weft_llvm)
foreach(layer IN LISTS WEFT_WITH_TYPES)
  target_compile_options(${layer} PRIVATE -g)
  if(WEFT_PCH)
    # g++ refuses precompiled headers that were made without -g, so this layer has its own, with the engine's in them.
    target_precompile_headers(${layer} PRIVATE ${WEFT_PCH_HEADERS} "${PROJECT_SOURCE_DIR}/src/c_api/context.h")
  endif()
endforeach()

# Cap'n Proto schemas become <serialization/schema/NAME.capnp.h>, seen by that layer (and its tests) alone.
file(GLOB weft_schemas CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/serialization/schema/*.capnp")
set(weft_capnp_imports "")
foreach(dir IN LISTS weft_capnp_include)
  list(APPEND weft_capnp_imports "-I${dir}")
endforeach()
set(weft_schema_headers "")
foreach(schema IN LISTS weft_schemas)
  file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${schema}")
  set(out "${PROJECT_BINARY_DIR}/generated/${name}")
  add_custom_command(OUTPUT "${out}.h" "${out}.c++" DEPENDS "${schema}"
    COMMAND "${WEFT_CAPNP}" compile "-o${WEFT_CAPNPC_CXX}:${PROJECT_BINARY_DIR}/generated"
            "--src-prefix=${PROJECT_SOURCE_DIR}" ${weft_capnp_imports} "${schema}"
    COMMENT "Schema ${name}" VERBATIM)
  target_sources(weft_serialization PRIVATE "${out}.c++")
  set_source_files_properties("${out}.c++" PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS "-w")
  list(APPEND weft_schema_headers "${out}.h")
endforeach()
add_custom_target(weft_schemas DEPENDS ${weft_schema_headers})
add_dependencies(weft_serialization weft_schemas)

# All layers, for tests that look inside. lld does not care about the order of archives.
add_library(weft_layers INTERFACE)
target_link_libraries(weft_layers INTERFACE ${WEFT_LAYERS})

# --- libweft.so.1 ------------------------------------------------------------------------------------
set(weft_map "${WEFT_GENERATED_DIR}/pkgconfig/weft.map")
# The C API's objects whole: nothing inside refers to them. Everything else comes as it is needed.
add_library(weft SHARED $<TARGET_OBJECTS:weft_c_api>)
list(REMOVE_ITEM WEFT_LAYERS weft_c_api)
target_link_libraries(weft PRIVATE ${WEFT_LAYERS} weft_old_glibc)
list(APPEND WEFT_LAYERS weft_c_api)
set_target_properties(weft PROPERTIES
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "" VERSION ${WEFT_ABI_MAJOR} SOVERSION ${WEFT_ABI_MAJOR} LINK_DEPENDS "${weft_map}")
target_include_directories(weft INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include/c_api> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/weft>)
# --undefined-version: a name that is in the list without a body is named by the symbol test.
# No --icf: the archives of LLVM lost their address-significance tables, so the safe form folds nothing; --icf=all saves
# 1.9 MB and breaks unwinding: a std::bad_alloc that is caught without it ends the process (fuzz.abi_fuzz).
target_link_options(weft PRIVATE
  "-Wl,--version-script=${weft_map}" -Wl,-Bsymbolic -Wl,-z,nodelete
  -Wl,--undefined-version -Wl,-z,relro -Wl,-z,now -Wl,--as-needed)
if(WEFT_SANITIZE)
  # The sanitizer's own functions come from the program.
else()
  target_link_options(weft PRIVATE -Wl,-z,defs -static-libstdc++ -static-libgcc)
  if(NOT WEFT_SYSTEM_DEPS)
    # What the library allocates goes through src/runtime/memory_reserve_hooks.cc. Not where others' libraries free it.
    foreach(function malloc calloc realloc free aligned_alloc memalign posix_memalign mmap)
      target_link_options(weft PRIVATE "-Wl,--wrap=${function}")
    endforeach()
  endif()
endif()
