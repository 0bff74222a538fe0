// Uses a saved model: loads weights from a file, and evaluates them on the test images, on one
// device, on all devices of this process, or on the workers that mpirun starts. Prints which
// classes are taken for which, and shows a few images, or an image of one's own. The model is the
// Wide ResNet of labs 1 and 2, or the small network of steps/save.c.
//
//     build/evaluate --weights FILE [--pictures DIR] [--image FILE] and the trainer's flags

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "hvdlab.h"
#include "lessons/exercises.h"

enum { CLASSES = 10, CELLS = CLASSES * CLASSES, SIDE = 28, PIXELS = SIDE * SIDE, SHOWN = 3 };

static const char *const names[CLASSES] = {"T-shirt", "trouser", "pullover", "dress", "coat",
                                           "sandal",  "shirt",   "sneaker",  "bag",   "ankle boot"};

// This program's own flags; the rest are the trainer's.
static const char *weights, *pictures, *own_image;

// All workers come here for the same reason, and the root says it.
_Noreturn static void refuse(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    if (hvd_rank() == 0) {
        fprintf(stderr, "evaluate: ");
        vfprintf(stderr, format, values);
        fprintf(stderr, "\n");
    }
    va_end(values);
    exit(2);
}

// The value of a flag, "--name VALUE" or "--name=VALUE", which is taken out of the command line.
static const char *take_flag(const char *name, int *argc, char **argv)
{
    const char *value = NULL;
    size_t length = strlen(name);
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strncmp(argv[i], name, length) != 0 || (argv[i][length] && argv[i][length] != '=')) {
            argv[kept++] = argv[i];
            continue;
        }
        value = argv[i][length] ? argv[i] + length + 1 : argv[++i];
        if (!value || !*value)
            refuse("%s lacks its value", name);
    }
    *argc = kept;
    argv[kept] = NULL;
    return value;
}

// ---- The model that the file's shapes ask for. It gives out logits: so the loss is exact where a
// probability would be rounded to 0.

static Tensor cbr(Tensor x, int filters)
{
    return relu(batch_norm(conv2d(x, filters, 3)));
}

static Tensor conv_block(Tensor x, int filters, bool scale_input)
{
    Tensor x0 = scale_input ? conv2d(x, filters, 1) : x;
    x = dropout(cbr(x, filters), 0.01f);
    return add(x0, cbr(x, filters));
}

static Model *create_wide_resnet(int width)
{
    Tensor image = input(SIDE, SIDE, 1), x = cbr(image, 16);
    for (int group = 1; group <= 4; group *= 2) {
        x = conv_block(x, 16 * group * width, true);
        x = conv_block(x, 16 * group * width, false);
        if (group < 4)
            x = max_pool(x, 2);
    }
    return model(image, dense(global_average_pool(x), CLASSES));
}

static Model *create_model(void)
{
    // In a block that scales its input the 1x1 convolution comes first.
    if (weights_dim(weights, "conv2d_15/kernel", 3) > 0)
        return create_wide_resnet(weights_dim(weights, "conv2d_1/kernel", 3) / 16);
    return create_lenet(weights_dim(weights, "conv2d/kernel", 3), 0);
}

static Optimizer *create_optimizer(void)
{
    return sgd(0.1f); // which is not used
}

static void check_file(void)
{
    int filters = weights_dim(weights, "conv2d/kernel", 3);
    bool wide = weights_dim(weights, "conv2d_15/kernel", 3) > 0;
    int width = weights_dim(weights, "conv2d_1/kernel", 3);
    if (filters < 1 || filters > 1024 || (wide && (width < 16 || width > 16 * 64)))
        refuse("%s: these are neither the Wide ResNet's weights nor those of steps/save.c",
               weights);
}

// ---- Evaluation.

// Sums over images. Counts of several workers add up exactly.
typedef struct {
    int counts[CELLS]; // of true class and predicted class
    double loss;
} Sums;

typedef struct {
    const Dataset *test;
    Statistics statistics;
    int batch_size;
    Sums *sums; // of each device
} Work;

static int best_class(const float *logits)
{
    int best = 0;
    for (int i = 1; i < CLASSES; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static void add_image(Sums *sums, const float *logits, int label)
{
    int predicted = best_class(logits);
    double sum = 0;
    for (int i = 0; i < CLASSES; i++)
        sum += exp((double)logits[i] - logits[predicted]);
    sums->loss += log(sum) + logits[predicted] - logits[label];
    sums->counts[label * CLASSES + predicted]++;
}

// Every count-th image, from number `index` on.
static void evaluate_part(Model *model, const Work *work, int index, int count, Sums *sums)
{
    const Dataset *test = work->test;
    int size = work->batch_size < test->count ? work->batch_size : test->count;
    float *images = malloc((size_t)size * PIXELS * sizeof *images);
    float *logits = malloc((size_t)size * CLASSES * sizeof *logits);
    int *labels = malloc((size_t)size * sizeof *labels);
    for (int next = index; next < test->count;) {
        Batch batch = {.images = images, .labels = labels};
        for (; batch.count < size && next < test->count; next += count, batch.count++) {
            augment_image(test->images + (size_t)next * PIXELS, SIDE, SIDE, 1, work->statistics, 0,
                          0, false, images + (size_t)batch.count * PIXELS);
            labels[batch.count] = test->labels[next];
        }
        predict_on_batch(model, &batch, logits);
        for (int i = 0; i < batch.count; i++)
            add_image(sums, logits + i * CLASSES, labels[i]);
    }
    free(images);
    free(logits);
    free(labels);
}

static void evaluate_on_device(Replica *replica, void *argument)
{
    Work *work = argument;
    if (replica->index > 0)
        load_weights(replica->model, weights);
    evaluate_part(replica->model, work, replica->index, replica->count,
                  &work->sums[replica->index]);
}

static void add_up(Sums *total, const Sums *sums)
{
    total->loss += sums->loss;
    for (int i = 0; i < CELLS; i++)
        total->counts[i] += sums->counts[i];
}

// The sums of all workers, on each of them.
static void add_workers(Sums *total)
{
    float parts[2] = {(float)total->loss};
    parts[1] = (float)(total->loss - parts[0]); // what a float does not hold of it
    hvd_allreduce(parts, 2, HVD_SUM);
    hvd_allreduce_ints(total->counts, CELLS, HVD_SUM);
    total->loss = (double)parts[0] + parts[1];
}

// ---- What is printed.

static const char *class_name(const Args *args, int number)
{
    static char generated[CLASSES][16];
    if (args->data != DATA_SYNTHETIC)
        return names[number];
    snprintf(generated[number], sizeof generated[number], "class %d", number);
    return generated[number];
}

static void print_table(const Args *args, const Sums *total)
{
    printf("\nRows: true class. Columns: predicted class.\n%14s", "");
    for (int i = 0; i < CLASSES; i++)
        printf("%6d", i);
    for (int label = 0; label < CLASSES; label++) {
        printf("\n%2d %-11s", label, class_name(args, label));
        for (int i = 0; i < CLASSES; i++)
            printf("%6d", total->counts[label * CLASSES + i]);
    }
    printf("\n");
}

static void print_score(const Args *args, const Sums *total)
{
    int right = 0, images = 0;
    for (int i = 0; i < CELLS; i++) {
        images += total->counts[i];
        right += i % (CLASSES + 1) == 0 ? total->counts[i] : 0;
    }
    printf("Test loss: %.7f\n", total->loss / images);
    printf("Test accuracy: %.4f (%d of %d)\n", (double)right / images, right, images);
    print_table(args, total);
}

// Two rows of pixels are a line.
static void print_image(const uint8_t *pixels)
{
    static const char shades[] = " .:-=+*#%@";
    for (int y = 0; y < SIDE; y += 2) {
        for (int x = 0; x < SIDE; x++)
            putchar(shades[(pixels[y * SIDE + x] + pixels[(y + 1) * SIDE + x]) * 9 / 510]);
        printf("\n");
    }
}

// A picture of this program's has this in its first line.
#define MARK "<svg class=\"build-evaluate\""

static void need_own_picture(const char *path)
{
    char line[256] = MARK;
    FILE *file = fopen(path, "r");
    if (file && !fgets(line, sizeof line, file))
        *line = '\0';
    if (file)
        fclose(file);
    if (!strstr(line, MARK))
        refuse("%s is there, and was not written by this program: name another folder", path);
}

static void write_picture(int number, const uint8_t *pixels, const char *predicted,
                          const char *truth)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/image-%d.svg", pictures, number);
    need_own_picture(path);
    FILE *file = fopen(path, "w");
    if (!file)
        refuse("cannot write %s: %s", path, strerror(errno));
    fprintf(file, MARK " xmlns=\"http://www.w3.org/2000/svg\" width=\"308\" height=\"352\" "
                       "viewBox=\"0 0 28 32\">\n<rect width=\"28\" height=\"28\"/>\n");
    for (int i = 0; i < PIXELS; i++)
        if (pixels[i] > 0)
            fprintf(file,
                    "<rect x=\"%d\" y=\"%d\" width=\"1\" height=\"1\" fill=\"rgb(%d,%d,%d)\"/>\n",
                    i % SIDE, i / SIDE, pixels[i], pixels[i], pixels[i]);
    fprintf(file, "<g font-size=\"1.5\"><text y=\"29.5\">%s</text>", predicted);
    fprintf(file, "<text y=\"31.4\">%s</text></g>\n</svg>\n", truth);
    if (fclose(file) != 0)
        refuse("cannot write %s: %s", path, strerror(errno));
}

// Says what the model makes of an image. `label` below 0: nobody knows what it is.
static void show_image(Model *model, const Work *work, const Args *args, int number,
                       const uint8_t *pixels, int label)
{
    float image[PIXELS], logits[CLASSES];
    char text[64], truth[64] = "";
    augment_image(pixels, SIDE, SIDE, 1, work->statistics, 0, 0, false, image);
    predict_on_batch(model, &(Batch){.images = image, .count = 1}, logits);
    Sums sums = {0};
    int predicted = best_class(logits);
    add_image(&sums, logits, predicted); // a loss of minus the logarithm of its probability
    snprintf(text, sizeof text, "predicted: %s (%.0f %%)", class_name(args, predicted),
             100 * exp(-sums.loss));
    if (label >= 0)
        snprintf(truth, sizeof truth, "true: %s", class_name(args, label));
    printf("\n");
    print_image(pixels);
    printf("%s%s%s\n", text, label < 0 ? "" : ", ", truth);
    if (pictures)
        write_picture(number, pixels, text, truth);
}

// ---- An image of one's own.

// The next number of a PGM file's header, behind white space and comments; -1: there is none.
static int read_number(FILE *file)
{
    int number = -1, c = getc(file);
    while (c == '#' || (c > 0 && strchr(" \t\r\n", c))) {
        while (c == '#' && (c = getc(file)) != '\n' && c != EOF)
            c = '#';
        c = getc(file);
    }
    for (; c >= '0' && c <= '9' && number < 100000; c = getc(file))
        number = 10 * (number < 0 ? 0 : number) + c - '0';
    return number;
}

static void read_image(const char *path, uint8_t pixels[PIXELS])
{
    FILE *file = fopen(path, "rb");
    if (!file)
        refuse("cannot read %s: %s", path, strerror(errno));
    int first = getc(file), kind = getc(file);
    if (first != 'P' || (kind != '2' && kind != '5'))
        refuse("%s is no PGM file (P2 or P5): convert %s -resize 28x28! -colorspace Gray x.pgm",
               path, path);
    int width = read_number(file), height = read_number(file), most = read_number(file);
    if (width != SIDE || height != SIDE || most < 1 || most > 255)
        refuse("%s has to be %d x %d pixels of at most 255, and its header says %d x %d of %d",
               path, SIDE, SIDE, width, height, most);
    for (int i = 0; i < PIXELS; i++) {
        int value = kind == '2' ? read_number(file) : getc(file);
        if (value < 0 || value > most)
            refuse("%s: pixel %d of %d is missing or above %d", path, i + 1, PIXELS, most);
        pixels[i] = (uint8_t)(value * 255 / most);
    }
    fclose(file);
}

// ---- The program.

int main(int argc, char **argv)
{
    hvd_init();
    weights = take_flag("--weights", &argc, argv);
    pictures = take_flag("--pictures", &argc, argv);
    own_image = take_flag("--image", &argc, argv);
    device_use(hvd_local_rank());
    Args args = parse_args(argc, argv);
    if (!weights)
        refuse("--weights is missing: it names a file that checkpoint() or save_weights() wrote");
    check_file();
    uint8_t own_pixels[PIXELS];
    if (own_image && hvd_rank() == 0)
        read_image(own_image, own_pixels);
    if (pictures && mkdir(pictures, 0777) != 0 && errno != EEXIST)
        refuse("cannot make the folder %s: %s", pictures, strerror(errno));

    // The file has weights and moving statistics; by what images are standardized it does not say.
    Dataset train = load_data(&args, TRAIN);
    Dataset test = load_data(&args, TEST);
    Work work = {&test, image_statistics(&train), args.val_batch_size, NULL};

    // A worker has a device, and a process that is alone has all.
    int device = device_index();
    Mirrored *replicas =
        mirrored(create_model, CATEGORICAL_CROSSENTROPY_FROM_LOGITS, create_optimizer,
                 hvd_size() > 1 ? &device : NULL, hvd_size() > 1 ? 1 : 0);
    Model *model = mirrored_model(replicas, 0);
    load_weights(model, weights);
    bool root = hvd_rank() == 0;
    if (own_image) {
        if (root)
            show_image(model, &work, &args, 0, own_pixels, -1);
        return 0;
    }
    Sums total = {0};
    if (hvd_size() > 1) {
        evaluate_part(model, &work, hvd_rank(), hvd_size(), &total);
        add_workers(&total);
    } else {
        work.sums = calloc((size_t)mirrored_devices(replicas), sizeof *work.sums);
        on_each_device(replicas, evaluate_on_device, &work);
        for (int i = 0; i < mirrored_devices(replicas); i++)
            add_up(&total, &work.sums[i]);
        free(work.sums);
    }
    if (root)
        print_score(&args, &total);
    for (int i = 0; root && i < SHOWN && i < test.count; i++)
        show_image(model, &work, &args, i, test.images + (size_t)i * PIXELS, test.labels[i]);
    return 0;
}
