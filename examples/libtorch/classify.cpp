// Runs a trained classifier with LibTorch alone: ./classify MODEL.pt IMAGES.f32 BATCH ROWS COLUMNS
// IMAGES.f32 holds float32 values in C order. Prints one line an image: the class, then the logits. No Python is involved.

#include <torch/script.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: %s MODEL.pt IMAGES.f32 BATCH ROWS COLUMNS\n", argv[0]);
        return 2;
    }
    const std::int64_t batch = std::atoll(argv[3]), rows = std::atoll(argv[4]), columns = std::atoll(argv[5]);
    try {
        std::vector<float> pixels(static_cast<std::size_t>(batch * rows * columns));
        std::ifstream file(argv[2], std::ios::binary);
        file.read(reinterpret_cast<char*>(pixels.data()), static_cast<std::streamsize>(pixels.size() * sizeof(float)));
        TORCH_CHECK(file.good(), argv[2], " does not hold ", pixels.size(), " numbers");
        at::Tensor images = torch::from_blob(pixels.data(), {batch, rows, columns}, at::kFloat);

        torch::jit::Module module = torch::jit::load(argv[1]);
        torch::NoGradGuard no_grad;
        at::Tensor logits = module.forward({images}).toTensor().to(at::kDouble).contiguous();
        at::Tensor classes = logits.argmax(1);
        for (std::int64_t i = 0; i < batch; ++i) {
            std::printf("%lld", static_cast<long long>(classes[i].item<std::int64_t>()));
            for (std::int64_t k = 0; k < logits.size(1); ++k) std::printf(" %.9g", logits[i][k].item<double>());
            std::printf("\n");
        }
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
