# Finds the headers the executor is compiled against, in this order: the cache variables below, the packages of the
# building Python, a CUDA toolkit. Only headers: nothing of CUDA or cuDNN is linked.
#
#   SDPA_FFI_FRONTEND_INCLUDE  folder with cudnn_frontend.h
#   SDPA_FFI_CUDNN_INCLUDE     folder with cudnn.h
#   SDPA_FFI_CUDA_INCLUDE      folder with cuda.h and cuda_runtime.h
#   SDPA_FFI_NVRTC_INCLUDE     folder with nvrtc.h
#
# Defines the target sdpa_ffi::headers.

execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_headers.py"
  OUTPUT_VARIABLE package_includes COMMAND_ERROR_IS_FATAL ANY)

function(find_header variable header package)
  # No default paths: CMake would prefer headers installed around the build to those the build asked for.
  find_path(${variable} ${header} PATHS ${package_includes} /usr/local/cuda/include NO_DEFAULT_PATH
    DOC "Folder with ${header}")
  if(NOT ${variable})
    message(FATAL_ERROR "${header} was not found. Set -D${variable}=<folder>, or run: pip install ${package}")
  endif()
  message(STATUS "${header}: ${${variable}}")
endfunction()

find_header(SDPA_FFI_FRONTEND_INCLUDE cudnn_frontend.h "--no-deps nvidia-cudnn-frontend==1.28.0")
find_header(SDPA_FFI_CUDNN_INCLUDE cudnn.h nvidia-cudnn-cu13)
find_header(SDPA_FFI_CUDA_INCLUDE cuda.h "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl")
find_header(SDPA_FFI_NVRTC_INCLUDE nvrtc.h nvidia-cuda-nvrtc)

add_library(sdpa_ffi_headers INTERFACE)
add_library(sdpa_ffi::headers ALIAS sdpa_ffi_headers)
# nvrtc's folder last: a pip folder beside nvrtc.h may hold the headers of another CUDA version.
target_include_directories(sdpa_ffi_headers SYSTEM INTERFACE
  "${SDPA_FFI_FRONTEND_INCLUDE}" "${SDPA_FFI_CUDNN_INCLUDE}" "${SDPA_FFI_CUDA_INCLUDE}" "${SDPA_FFI_NVRTC_INCLUDE}")
