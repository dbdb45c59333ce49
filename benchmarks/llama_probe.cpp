// What llama.cpp makes of a GGUF file, for benchmarks/interop.py:
//
//     llama_probe MODEL PROMPT TOKENS LOGITS
//
// reads the file PROMPT, writes the logits of all its tokens and of TOKENS greedy ones to LOGITS (float32), and prints
// both lists of tokens. Build it against llama.cpp's headers and libraries:
//
//     g++ -std=c++17 -I llama.cpp/include -I llama.cpp/ggml/include benchmarks/llama_probe.cpp -o llama_probe -L LIB -lllama -lggml -lggml-base

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

int main(int argc, char ** argv) {
    if (argc != 5) return 1;
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
    }, nullptr);
    const char * libraries = getenv("GGML_LIBRARIES");  // where the backends lie, if they are separate files
    if (libraries) ggml_backend_load_all_from_path(libraries); else ggml_backend_load_all();
    auto loading = llama_model_default_params();
    loading.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(argv[1], loading);
    if (!model) return 2;
    const llama_vocab * vocab = llama_model_get_vocab(model);
    std::stringstream read;
    read << std::ifstream(argv[2]).rdbuf();
    const std::string text = read.str();
    std::vector<llama_token> tokens(text.size() + 8);
    const int given = llama_tokenize(vocab, text.c_str(), text.size(), tokens.data(), tokens.size(), true, false);
    auto options = llama_context_default_params();
    options.n_ctx = options.n_batch = options.n_ubatch = 512;
    options.n_threads = options.n_threads_batch = 1;
    options.type_k = options.type_v = GGML_TYPE_F32;
    options.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context * context = llama_init_from_model(model, options);
    if (!context || given < 1) return 3;
    const int size = llama_vocab_n_tokens(vocab);
    auto batch = llama_batch_init(512, 0, 1);
    auto add = [&](llama_token token, int position) {
        const int at = batch.n_tokens++;
        batch.token[at] = token, batch.pos[at] = position, batch.n_seq_id[at] = 1, batch.seq_id[at][0] = 0;
        batch.logits[at] = 1;
        printf("%d ", token);
    };
    std::ofstream out(argv[4], std::ios::binary);
    for (int i = 0; i < given; ++i) add(tokens[i], i);
    printf("\n");
    for (int written = 0; ; ++written) {
        if (llama_decode(context, batch)) return 4;
        const float * logits = nullptr;
        for (int i = 0; i < batch.n_tokens; ++i) {
            logits = llama_get_logits_ith(context, i);
            out.write(reinterpret_cast<const char *>(logits), sizeof(float) * size);
        }
        if (written == atoi(argv[3])) return 0;
        int best = 0;
        for (int token = 1; token < size; ++token) if (logits[token] > logits[best]) best = token;
        batch.n_tokens = 0;
        add(best, given + written);
    }
}
