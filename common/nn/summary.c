// A graph as a table for people to read, as Keras's model.summary() prints it: a line for each
// layer, under Keras's names, and the number of parameters.

#include <stdio.h>
#include <string.h>
#include "nn/graph.h"

// Columns of the table; names are cut where they are longer.
enum { NAME_WIDTH = 50, SHAPE_WIDTH = 22, WIDTH = 82 };

// As Keras calls the layer, and its class.
static const struct {
    const char *name, *type;
} kinds[NODE_KINDS] = {
    [NODE_INPUT] = {"input", "InputLayer"},
    [NODE_INPUT_TOKENS] = {"input", "InputLayer"},
    [NODE_INPUT_VECTOR] = {"input", "InputLayer"},
    [NODE_EMBEDDING] = {"embedding", "Embedding"},
    [NODE_CONV2D] = {"conv2d", "Conv2D"},
    [NODE_BATCH_NORM] = {"batch_normalization", "BatchNormalization"},
    [NODE_RELU] = {"re_lu", "ReLU"},
    [NODE_DROPOUT] = {"dropout", "Dropout"},
    [NODE_ADD] = {"add", "Add"},
    [NODE_MAX_POOL] = {"max_pooling2d", "MaxPooling2D"},
    [NODE_GLOBAL_AVERAGE_POOL] = {"global_average_pooling2d", "GlobalAveragePooling2D"},
    [NODE_FLATTEN] = {"flatten", "Flatten"},
    [NODE_DENSE] = {"dense", "Dense"},
    [NODE_CUSTOM] = {"custom_layer", "CustomLayer"},
    [NODE_SOFTMAX] = {"softmax", "Softmax"},
};

static void rule(char mark)
{
    for (int i = 0; i < WIDTH; i++)
        putchar(mark);
    putchar('\n');
}

// "17,116,634"
static void add_number(char *text, size_t size, size_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%zu", number);
    size_t end = strlen(text);
    for (int i = 0; i < length && end + 2 < size; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[end++] = ',';
        text[end++] = digits[i];
    }
    text[end] = '\0';
}

// True if the layer's output is a vector, without height and width.
static bool is_vector(const struct Node *node)
{
    switch (node->kind) {
    case NODE_INPUT_VECTOR:
    case NODE_GLOBAL_AVERAGE_POOL:
    case NODE_FLATTEN:
    case NODE_DENSE:
        return true;
    case NODE_BATCH_NORM:
    case NODE_RELU:
    case NODE_DROPOUT:
    case NODE_ADD:
    case NODE_CUSTOM:
    case NODE_SOFTMAX:
        return is_vector(node->inputs[0]);
    default:
        return false;
    }
}

// The batch's size is not known: None.
static void shape_text(const struct Node *node, char *text, size_t size)
{
    Shape s = node->shape;
    if (node->kind == NODE_INPUT_TOKENS)
        snprintf(text, size, "(None, %d)", s.width);
    else if (node->kind == NODE_EMBEDDING)
        snprintf(text, size, "(None, %d, %d)", s.width, s.channels);
    else if (is_vector(node))
        snprintf(text, size, "(None, %d)", s.channels);
    else
        snprintf(text, size, "(None, %d, %d, %d)", s.height, s.width, s.channels);
}

// Counts the layer's trained, or untrained, variables.
static size_t parameters(const struct Node *node, bool trainable)
{
    size_t sum = 0;
    for (int i = 0; i < MAX_VARIABLES; i++)
        if (node->variables[i] && node->variables[i]->trainable == trainable)
            sum += variable_size(node->variables[i]);
    return sum;
}

// The number-th layer of its kind, from 0.
static void print_layer(const struct Node *node, int number)
{
    char name[80], shape[64], count[32] = "";
    const char *type = kinds[node->kind].type;
    if (number == 0)
        snprintf(name, sizeof name, "%s (%s)", kinds[node->kind].name, type);
    else
        snprintf(name, sizeof name, "%s_%d (%s)", kinds[node->kind].name, number, type);
    shape_text(node, shape, sizeof shape);
    add_number(count, sizeof count, parameters(node, true) + parameters(node, false));
    printf("%-*.*s%-*s%s\n", NAME_WIDTH, NAME_WIDTH - 1, name, SHAPE_WIDTH, shape, count);
}

static void print_total(const char *of, size_t number)
{
    char text[64];
    snprintf(text, sizeof text, "%s: ", of);
    add_number(text, sizeof text, number);
    puts(text);
}

void graph_summary(const Graph *graph)
{
    int numbers[NODE_KINDS] = {0};
    size_t trained = 0, others = 0;
    rule('_');
    printf("%-*s%-*s%s\n", NAME_WIDTH, "Layer (type)", SHAPE_WIDTH, "Output shape", "Parameters");
    rule('=');
    for (int i = 0; i < graph->node_count; i++) {
        const struct Node *node = graph->nodes[i];
        print_layer(node, numbers[node->kind]++);
        trained += parameters(node, true);
        others += parameters(node, false);
    }
    rule('=');
    print_total("Parameters", trained + others);
    print_total("Trainable", trained);
    print_total("Not trainable", others);
    rule('_');
    fflush(stdout);
}
