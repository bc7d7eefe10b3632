# Examples and benchmarks: each file a program in ${build}/bin, linked to nothing of ours but libweft.so.
# C programs are what users write: C99, -pedantic-errors.

function(weft_program file prefix)
  get_filename_component(name "${file}" NAME_WE)
  set(name "${prefix}${name}")
  add_executable(${name} "${file}")
  target_link_libraries(${name} PRIVATE weft ZLIB::ZLIB Threads::Threads m ${CMAKE_DL_LIBS})
  target_compile_options(${name} PRIVATE -Wall -Wextra
    $<$<COMPILE_LANGUAGE:C>:-pedantic-errors> ${WEFT_SANITIZE_FLAGS})
  target_link_options(${name} PRIVATE ${WEFT_SANITIZE_FLAGS})
  get_filename_component(folder "${file}" DIRECTORY)
  target_include_directories(${name} PRIVATE "${folder}")
endfunction()

if(WEFT_BUILD_PROGRAMS)
  file(GLOB weft_examples CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/c/*.c")
  foreach(file IN LISTS weft_examples)
    weft_program("${file}" "")
  endforeach()
  file(GLOB weft_benchmarks CONFIGURE_DEPENDS
    "${PROJECT_SOURCE_DIR}/benchmarks/*.cc" "${PROJECT_SOURCE_DIR}/benchmarks/*.c")
  foreach(file IN LISTS weft_benchmarks)
    weft_program("${file}" "")
  endforeach()
  add_dependencies(start train_fashion_mnist)  # which it runs
  weft_program("${PROJECT_SOURCE_DIR}/benchmarks/workloads/workloads.cc" "")  # of several files
  file(GLOB weft_workloads CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/workloads/net*.cc")
  target_sources(workloads PRIVATE ${weft_workloads})
  # Benchmarks that look inside link the layers themselves.
  file(GLOB weft_kernel_benchmarks CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/benchmarks/kernels/*.cc")
  foreach(file IN LISTS weft_kernel_benchmarks)
    get_filename_component(name "${file}" NAME_WE)
    add_executable(${name} "${file}")
    target_link_libraries(${name} PRIVATE weft_backends_cpu weft_runtime)
  endforeach()
  target_link_libraries(attention PRIVATE weft_layers)  # whole programs
endif()
