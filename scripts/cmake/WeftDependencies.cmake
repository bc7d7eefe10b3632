# Finds what Weft is built from: LLVM 19, Abseil, Cap'n Proto, LAPACK, zstd, zlib, libffi, xxHash and nlohmann's JSON (headers only).
# Abseil and Cap'n Proto are private position-independent builds that scripts/install-deps keeps in a
# cache shared by all build trees; with WEFT_SYSTEM_DEPS the system's shared libraries where they serve.

set(weft_variant default)
if(WEFT_SANITIZE STREQUAL "address")
  set(weft_variant asan)
elseif(WEFT_SANITIZE STREQUAL "thread")
  set(weft_variant tsan)
endif()
execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/install-deps" --variant ${weft_variant} --print-prefix
  OUTPUT_VARIABLE WEFT_DEPS_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS "${WEFT_DEPS_PREFIX}/.complete")
  message(STATUS "Private dependencies (${weft_variant}) are not in the cache yet: building them")
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/install-deps" --variant ${weft_variant} --no-apt
    COMMAND_ERROR_IS_FATAL ANY)
endif()
message(STATUS "Private dependencies: ${WEFT_DEPS_PREFIX}")
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(weft_flags INTERFACE "-ffile-prefix-map=${WEFT_DEPS_PREFIX}=${WEFT_SOURCE_NAME}/dependencies")
endif()

# --- LLVM: code generation and ORC for this machine (an archive gives only the members that are referred to) ---
find_program(WEFT_LLVM_CONFIG NAMES llvm-config-19 REQUIRED)
function(weft_llvm_config out)
  execute_process(COMMAND "${WEFT_LLVM_CONFIG}" ${ARGN} OUTPUT_VARIABLE text
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()
weft_llvm_config(weft_llvm_include --includedir)
weft_llvm_config(weft_llvm_libdir --libdir)
add_library(weft_llvm INTERFACE)
target_include_directories(weft_llvm SYSTEM INTERFACE ${weft_llvm_include})
if(WEFT_SYSTEM_DEPS)
  weft_llvm_config(weft_llvm_libs --link-shared --libs core)
  message(STATUS "LLVM: the system's shared library")
else()
  weft_llvm_config(weft_llvm_libs --link-static --libs orcjit x86codegen x86asmparser core passes)
endif()
target_link_directories(weft_llvm INTERFACE ${weft_llvm_libdir})
target_link_libraries(weft_llvm INTERFACE ${weft_llvm_libs})

# --- zlib, zstd, libffi, xxHash ------------------------------------------------------------------------------
find_package(ZLIB REQUIRED)
find_path(WEFT_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(WEFT_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(WEFT_ZSTD_INCLUDE zstd.h REQUIRED)
find_path(WEFT_FFI_INCLUDE ffi.h REQUIRED)
if(WEFT_SYSTEM_DEPS)
  find_library(WEFT_ZSTD_LIBRARY NAMES libzstd.so REQUIRED)
  find_library(WEFT_FFI_LIBRARY NAMES libffi.so REQUIRED)
  set(weft_zlib_library ZLIB::ZLIB)
else()
  # Debian's archives of the first two are position independent; of libffi it has one that is.
  find_library(WEFT_FFI_STATIC NAMES libffi_pic.a REQUIRED)
  set(WEFT_FFI_LIBRARY "${WEFT_FFI_STATIC}")
  find_library(WEFT_ZSTD_STATIC NAMES libzstd.a REQUIRED)
  set(WEFT_ZSTD_LIBRARY "${WEFT_ZSTD_STATIC}")
  find_library(WEFT_ZLIB_STATIC NAMES libz.a REQUIRED)
  set(weft_zlib_library "${WEFT_ZLIB_STATIC}")
endif()
add_library(weft_zlib INTERFACE)
target_include_directories(weft_zlib SYSTEM INTERFACE ${ZLIB_INCLUDE_DIRS})
target_link_libraries(weft_zlib INTERFACE ${weft_zlib_library})
target_link_libraries(weft_llvm INTERFACE "${WEFT_ZSTD_LIBRARY}" weft_zlib)
add_library(weft_zstd INTERFACE)
target_include_directories(weft_zstd SYSTEM INTERFACE "${WEFT_ZSTD_INCLUDE}")
target_link_libraries(weft_zstd INTERFACE "${WEFT_ZSTD_LIBRARY}")
add_library(weft_ffi INTERFACE)
target_include_directories(weft_ffi SYSTEM INTERFACE "${WEFT_FFI_INCLUDE}")
target_link_libraries(weft_ffi INTERFACE "${WEFT_FFI_LIBRARY}")

# --- LAPACK, over the reference BLAS ---------------------------------------------------------------------------
# Debian's archives, whose code is position independent: of LAPACK the one built so, of BLAS the only one, which refers to functions
# alone. src/linalg has the products of matrices itself, and the two functions that Fortran asks its surroundings for.
find_library(WEFT_LAPACK_STATIC NAMES liblapack_pic.a REQUIRED)
find_library(WEFT_BLAS_STATIC NAMES libblas.a PATH_SUFFIXES "${CMAKE_LIBRARY_ARCHITECTURE}/blas" blas NO_DEFAULT_PATH PATHS /usr/lib REQUIRED)
add_library(weft_lapack INTERFACE)
target_link_libraries(weft_lapack INTERFACE "${WEFT_LAPACK_STATIC}" "${WEFT_BLAS_STATIC}")

# --- Abseil and Cap'n Proto --------------------------------------------------------------------------
# The system's Abseil serves from 20230802 on: before, Debian built it with a string_view of its own.
set(weft_absl_root "${WEFT_DEPS_PREFIX}")
# What an earlier configure found, another variant or the system's, is no answer any more.
unset(absl_DIR CACHE)
if(WEFT_SYSTEM_DEPS)
  find_package(absl QUIET CONFIG)
  if(absl_FOUND AND absl_VERSION VERSION_GREATER_EQUAL 20230802)
    message(STATUS "Abseil ${absl_VERSION}: the system's")
  else()
    if(NOT absl_VERSION)
      set(absl_VERSION "none that CMake finds")
    endif()
    message(STATUS "Abseil: the system's (${absl_VERSION}) is older than 20230802, keeping the private one")
    unset(absl_DIR CACHE)
    unset(absl_FOUND)
  endif()
endif()
if(NOT absl_FOUND)
  find_package(absl REQUIRED CONFIG PATHS "${weft_absl_root}" NO_DEFAULT_PATH)
endif()
add_library(weft_absl INTERFACE)
target_link_libraries(weft_absl INTERFACE
  absl::base absl::core_headers absl::status absl::statusor absl::strings absl::str_format absl::span
  absl::synchronization absl::flat_hash_map absl::flat_hash_set absl::inlined_vector absl::node_hash_map
  absl::fixed_array absl::hash absl::time absl::cleanup absl::int128 absl::function_ref absl::any_invocable
  absl::bits absl::btree absl::crc32c)

# The tool and the library must be one version, and the library's own tool would be instrumented in
# sanitizer builds: so the schema compiler is the system's if it matches, else the default build's.
set(weft_capnp_version 0.9.2)
add_library(weft_capnp INTERFACE)
set(weft_capnp_include "${WEFT_DEPS_PREFIX}/include")
if(WEFT_SYSTEM_DEPS)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(WEFT_SYSTEM_CAPNP QUIET IMPORTED_TARGET capnp>=0.9.2)
endif()
if(WEFT_SYSTEM_CAPNP_FOUND)
  message(STATUS "Cap'n Proto ${WEFT_SYSTEM_CAPNP_VERSION}: the system's")
  set(weft_capnp_version ${WEFT_SYSTEM_CAPNP_VERSION})
  pkg_get_variable(WEFT_SYSTEM_CAPNP_INCLUDE capnp includedir)
  set(weft_capnp_include "${WEFT_SYSTEM_CAPNP_INCLUDE}")
  target_link_libraries(weft_capnp INTERFACE PkgConfig::WEFT_SYSTEM_CAPNP)
else()
  if(WEFT_SYSTEM_DEPS)
    message(STATUS "Cap'n Proto: the system has no libcapnp >= 0.9.2 to link (libcapnp-dev), keeping the private one")
  endif()
  target_include_directories(weft_capnp SYSTEM INTERFACE "${weft_capnp_include}")
  target_link_libraries(weft_capnp INTERFACE
    "${WEFT_DEPS_PREFIX}/lib/libcapnp.a" "${WEFT_DEPS_PREFIX}/lib/libkj.a" Threads::Threads)
endif()
find_program(WEFT_CAPNP NAMES capnp)
find_program(WEFT_CAPNPC_CXX NAMES capnpc-c++)
set(weft_capnp_tool "")
if(WEFT_CAPNP)
  execute_process(COMMAND "${WEFT_CAPNP}" --version OUTPUT_VARIABLE weft_capnp_tool)
endif()
if(NOT weft_capnp_tool MATCHES "${weft_capnp_version}")
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/install-deps" --no-apt COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/scripts/install-deps" --print-prefix
    OUTPUT_VARIABLE weft_default_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(WEFT_CAPNP "${weft_default_prefix}/bin/capnp")
  set(WEFT_CAPNPC_CXX "${weft_default_prefix}/bin/capnpc-c++")
endif()

# Third-party headers do not answer to our warnings.
get_target_property(dirs absl::base INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(weft_flags SYSTEM INTERFACE ${dirs} "${WEFT_XXHASH_INCLUDE}" "${WEFT_JSON_INCLUDE}")
