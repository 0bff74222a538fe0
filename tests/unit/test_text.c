// Generated sentences: what they are a function of, that their words are as unevenly frequent as
// promised, and batches of them.

#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "lessons/text.h"
#include "nn/layers.h"
#include "base/rng.h"
#include "run/args.h"

enum { LENGTH = 16, WORDS = 20000 };

static size_t token_count(const TextDataset *text)
{
    return (size_t)text->count * (size_t)text->length;
}

START_TEST(sentences_are_a_function_of_seed_and_split_alone)
{
    TextDataset a = synthetic_text(TRAIN, 3, 0, LENGTH, WORDS);
    set_seed(8); // which is none of their business
    TextDataset b = synthetic_text(TRAIN, 3, 500, LENGTH, WORDS);
    TextDataset c = synthetic_text(TRAIN, 4, 500, LENGTH, WORDS);
    TextDataset d = synthetic_text(TEST, 3, 500, LENGTH, WORDS);
    ck_assert(a.count == 12000 && b.count == 500 && a.length == LENGTH && a.classes == 10);
    size_t bytes = token_count(&b) * sizeof *b.tokens;
    ck_assert_mem_eq(a.tokens, b.tokens, bytes);
    ck_assert_mem_eq(a.labels, b.labels, 500 * sizeof *b.labels);
    ck_assert_mem_ne(c.tokens, b.tokens, bytes);
    ck_assert_mem_ne(d.tokens, b.tokens, bytes);
    text_free(&a);
    text_free(&b);
    text_free(&c);
    text_free(&d);
    ck_assert_ptr_null(d.tokens);
}
END_TEST

START_TEST(sentences_have_from_no_word_to_all)
{
    TextDataset text = synthetic_text(TRAIN, 1, 0, LENGTH, WORDS);
    int of_length[LENGTH + 1] = {0}, of_class[10] = {0};
    for (int i = 0; i < text.count; i++) {
        const float *words = text.tokens + i * LENGTH;
        int length = 0;
        while (length < LENGTH && words[length] != NO_TOKEN)
            length++;
        for (int w = 0; w < LENGTH; w++)
            ck_assert(w < length ? words[w] >= 0 && words[w] < WORDS : words[w] == NO_TOKEN);
        of_length[length]++;
        of_class[text.labels[i]]++;
    }
    for (int length = 0; length <= LENGTH; length++)
        ck_assert(of_length[length] > 500 && of_length[length] < 900); // 706 each
    for (int label = 0; label < 10; label++)
        ck_assert(of_class[label] > 1000 && of_class[label] < 1400);
    text_free(&text);
}
END_TEST

// The first tenth of the words is most of what is said; and most words are said by somebody.
START_TEST(few_words_are_frequent)
{
    TextDataset text = synthetic_text(TRAIN, 1, 0, LENGTH, WORDS);
    char *said = calloc(WORDS, 1);
    int words = 0, frequent = 0, different = 0;
    for (size_t i = 0; i < token_count(&text); i++)
        if (text.tokens[i] >= 0) {
            words++;
            frequent += text.tokens[i] < WORDS / 10;
            said[(int)text.tokens[i]] = 1;
        }
    for (int word = 0; word < WORDS; word++)
        different += said[word];
    ck_assert_int_gt(frequent, words * 7 / 10);
    ck_assert_int_gt(different, WORDS / 3);
    free(said);
    text_free(&text);
}
END_TEST

START_TEST(batches_follow_each_other)
{
    TextDataset text = synthetic_text(TRAIN, 1, 50, 4, 30);
    for (int number = 0; number < 4; number++) {
        Batch batch = text_batch(&text, number, 16);
        ck_assert_ptr_eq(batch.images, text.tokens + number * 16 * 4);
        ck_assert_ptr_eq(batch.labels, text.labels + number * 16);
        ck_assert_int_eq(batch.count, number < 3 ? 16 : 2);
    }
    text_free(&text);
}
END_TEST

static void batch_beyond_the_end(const void *unused)
{
    (void)unused;
    TextDataset text = synthetic_text(TRAIN, 1, 32, 4, 30);
    text_batch(&text, 2, 16);
}

static void no_words(const void *unused)
{
    (void)unused;
    synthetic_text(TRAIN, 1, 32, 4, 0);
}

START_TEST(what_is_not_there_ends_with_one_line)
{
    Outcome outcome = run_in_child(batch_beyond_the_end, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert(strstr(outcome.err, "there is no batch 2 of 16 sentences among 32"));
    outcome = run_in_child(no_words, NULL);
    ck_assert_int_eq(outcome.status, 2);
    ck_assert(strstr(outcome.err, "synthetic_text: sentences of 4 words of 0"));
}
END_TEST

START_TEST(the_command_line_says_how_many_and_which)
{
    Args args = {.images = 100};
    TextDataset a = load_text(&args, TRAIN, LENGTH, WORDS);
    settings()->seeded = true;
    settings()->seed = 5;
    TextDataset b = load_text(&args, TRAIN, LENGTH, WORDS);
    settings()->seeded = false;
    TextDataset c = load_text(&args, TRAIN, LENGTH, WORDS);
    ck_assert_int_eq(a.count, 100);
    ck_assert_mem_eq(a.tokens, c.tokens, token_count(&a) * sizeof *a.tokens);
    ck_assert_mem_ne(a.tokens, b.tokens, token_count(&a) * sizeof *a.tokens);
    text_free(&a);
    text_free(&b);
    text_free(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *text = tcase_create("text");
    tcase_add_test(text, sentences_are_a_function_of_seed_and_split_alone);
    tcase_add_test(text, sentences_have_from_no_word_to_all);
    tcase_add_test(text, few_words_are_frequent);
    tcase_add_test(text, batches_follow_each_other);
    tcase_add_test(text, what_is_not_there_ends_with_one_line);
    tcase_add_test(text, the_command_line_says_how_many_and_which);
    suite_add_tcase(suite, text);
    return run_suite(suite);
}
