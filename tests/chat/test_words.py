from chat.words import content_words, is_number


def test_a_number_is_one_word_however_it_is_written() -> None:
    assert content_words("1,024 tokens take 0.50 GiB") == content_words("1024 tokens take 0.5 GiB")
    assert content_words("eight heads") == content_words("8 heads")
    assert [word for word in content_words("a 7B model, int8, 16 bits") if is_number(word)] == [
        "7",
        "16",
    ]


def test_forms_of_an_english_word_are_one_word() -> None:
    assert len(set(content_words("cache caches cached caching"))) == 1
    assert len(set(content_words("stop stops stopped stopping"))) == 1
    assert len(set(content_words("page pages paged paging"))) == 1
    assert set(content_words("class")) != set(content_words("clas"))


def test_words_that_say_nothing_are_left_out() -> None:
    assert content_words("What is the size of it?") == content_words("size")
    assert content_words("多少的了吗") == []


def test_chinese_becomes_overlapping_pairs() -> None:
    assert content_words("键值缓存") == ["键值", "值缓", "缓存"]
    assert content_words("缓存的大小") == ["缓存", "大小"]


def test_full_width_text_equals_half_width_text() -> None:
    assert content_words("ＫＶ　１，０２４") == content_words("KV 1,024")
