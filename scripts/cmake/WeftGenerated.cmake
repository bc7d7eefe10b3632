# Derived files that are not committed (bindings/generate --list): written into the build tree under the paths that they would have in
# the source tree, so that includes find them. One command writes all, in half a second, and leaves alone what does not change.
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(WEFT_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
set(weft_generator "${PROJECT_SOURCE_DIR}/bindings/generate")
set(weft_described "${PROJECT_SOURCE_DIR}/include/c_api/weft_api.json")
file(GLOB_RECURSE weft_generator_code CONFIGURE_DEPENDS "${weft_generator}/*.py")

# Operations fill files of sixty, so the number of files changes: it is asked for again whenever the description has changed.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${weft_generator_code} "${weft_described}")
execute_process(COMMAND "${Python3_EXECUTABLE}" "${weft_generator}" --list OUTPUT_VARIABLE weft_generated_list COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "built [^\n]+" weft_generated_names "${weft_generated_list}")
list(TRANSFORM weft_generated_names REPLACE "^built " "")
list(TRANSFORM weft_generated_names PREPEND "${WEFT_GENERATED_DIR}/" OUTPUT_VARIABLE weft_generated_files)
add_custom_command(OUTPUT ${weft_generated_files} DEPENDS ${weft_generator_code} "${weft_described}" "${weft_generator}/api.json"
    "${PROJECT_SOURCE_DIR}/include/c_api/ops.json" "${PROJECT_SOURCE_DIR}/src/ops/special.list"
  COMMAND "${Python3_EXECUTABLE}" "${weft_generator}" --build "${WEFT_GENERATED_DIR}"
  COMMENT "Files that follow from the descriptions" VERBATIM)
add_custom_target(weft_generated DEPENDS ${weft_generated_files})
# Headers are among them: whatever is compiled with the layers' flags waits for all.
add_dependencies(weft_flags weft_generated)

# weft_generated_sources(out folder): those of a folder that are compiled.
function(weft_generated_sources out folder)
  set(files ${weft_generated_names})
  list(FILTER files INCLUDE REGEX "^${folder}/.*\\.cc$")
  list(TRANSFORM files PREPEND "${WEFT_GENERATED_DIR}/")
  set(${out} "${files}" PARENT_SCOPE)
endfunction()

# Bindings are whole below generated/bindings, in the layout of their packages: files that people write are linked there beside those that
# are made, so that an edit of one needs no build.
file(GLOB_RECURSE weft_binding_files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/bindings/cpp/*.hpp"
  "${PROJECT_SOURCE_DIR}/bindings/ffi/go.*" "${PROJECT_SOURCE_DIR}/bindings/python/libweft/*.py" "${PROJECT_SOURCE_DIR}/bindings/python/libweft/*.pyi"
  "${PROJECT_SOURCE_DIR}/bindings/python/libweft/py.typed")
list(REMOVE_ITEM weft_binding_files ${weft_generated_names})  # left in the folder by an older checkout
file(GLOB_RECURSE weft_binding_links "${WEFT_GENERATED_DIR}/bindings/*")
foreach(file IN LISTS weft_binding_links)
  if(IS_SYMLINK "${file}" AND NOT EXISTS "${file}")
    file(REMOVE "${file}")  # its file has another name by now
  endif()
endforeach()
foreach(file IN LISTS weft_binding_files)
  get_filename_component(folder "${WEFT_GENERATED_DIR}/${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${file}" "${WEFT_GENERATED_DIR}/${file}" SYMBOLIC)
endforeach()

# weft_install_binding(binding destination): its files, those that are made too, and no link.
function(weft_install_binding binding destination)
  foreach(home "${PROJECT_SOURCE_DIR}" "${WEFT_GENERATED_DIR}")
    set(files ${weft_binding_files})
    if(home STREQUAL WEFT_GENERATED_DIR)
      set(files ${weft_generated_names})
    endif()
    list(FILTER files INCLUDE REGEX "^bindings/${binding}/")
    foreach(file IN LISTS files)
      file(RELATIVE_PATH name "/bindings/${binding}" "/${file}")
      get_filename_component(folder "${name}" DIRECTORY)
      install(FILES "${home}/${file}" DESTINATION "${destination}/${folder}" COMPONENT dev)
    endforeach()
  endforeach()
endfunction()
