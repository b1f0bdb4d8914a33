"""A Hugging Face text classifier that says when a question is none of its business.

    python examples/text_classifier.py                    # a tiny BERT, made and trained on the spot, offline: seconds
    python examples/text_classifier.py bert-base-uncased  # any model by name or path, fine-tuned: minutes

It learns four intents of a bank's customers; questions about anything else are out of scope. The sentences are made
from templates and the tiny BERT knows no other English: a toy, whose numbers say nothing about your data.
"""

import sys
from itertools import product

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, PreTrainedTokenizerFast

from heat_ood import HEAT, Evaluation, Extractor, evaluate

POLITE = ("", "please ", "hello , ", "could you tell me : ", "one question : ", "hi there , ", "quickly : ")
THINGS = ("account", "card", "savings account", "credit card", "business account", "old card", "new card", "gold card")
PLACES = ("paris", "norway", "the moon", "old rome", "my town", "japan")
INTENTS = (
    ("what is the balance of my {}", "how much money is on my {}", "show the balance of the {}"),
    ("my {} was stolen", "block the {} at once", "somebody took the {} , block it"),
    ("how do i open a {}", "i would like to have a {}", "what does a {} cost"),
    ("send money from my {} to a friend", "transfer fifty euros from the {}", "pay a bill with my {}"),
)
ELSE = ("what is the weather in {}", "tell me a joke about {}", "how do i get to {}", "who is the king of {}")


def load(name: str | None, texts: list[str]):
    """A tokenizer, and a classifier that has yet to learn the intents."""
    if name is not None:
        model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=4, ignore_mismatched_sizes=True)
        return AutoTokenizer.from_pretrained(name), model
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]"]))
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = BertConfig(vocab_size=len(tokenizer), num_labels=4, initializer_range=0.1, **sizes)
    return tokenizer, AutoModelForSequenceClassification.from_config(config)


def main(name: str | None = None) -> tuple[float, Evaluation]:
    # What you have: a fine-tuned classifier, its training sentences, and others of the same kind.
    torch.manual_seed(0)
    made = [(p + t.format(x), c) for c, ts in enumerate(INTENTS) for p, t, x in product(POLITE, ts, THINGS)]
    made = [made[i] for i in torch.randperm(len(made))]
    fitting, held_out, test = made[:300], made[300:500], made[500:]
    tokenizer, model = load(name, [text for text, _ in fitting])

    def batches(pairs):  # dictionaries with input_ids, attention_mask and labels, as a data loader gives them
        for texts, labels in (zip(*pairs[i : i + 32], strict=True) for i in range(0, len(pairs), 32)):
            yield dict(tokenizer(list(texts), padding=True, return_tensors="pt"), labels=torch.tensor(labels))

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3 if name is None else 5e-5)
    for batch in (batch for _ in range(10 if name is None else 3) for batch in batches(fitting)):
        optimiser.zero_grad()
        model(**batch).loss.backward()
        optimiser.step()

    # The head is found and verified. What fills up a shorter sentence, by the attention mask, is not pooled.
    extractor = Extractor(model)
    train, calibration = (extractor.extract(batches(part)) for part in (fitting, held_out))
    detector = HEAT(residual=None).fit(train).calibrate(calibration)

    unrelated = [(p + t.format(x), 0) for p, t, x in product(POLITE, ELSE, PLACES)]
    features = extractor.extract(batches(test))
    false_alarms = detector.predict(features, fpr=0.05).double().mean().item()
    print(f"{false_alarms:.1%} of {len(test)} questions for the bank are flagged, where 5% were allowed on average.")
    result = evaluate(detector, features, {"out of scope": extractor.extract(batches(unrelated))}, intervals=False)
    print(result)

    guard = extractor.guard(detector)
    for text in ("please block the gold card at once", "what is the weather in norway"):
        logits, _, p_value = guard(tokenizer([text], return_tensors="pt"))
        print(f"{text!r}: intent {logits.argmax().item()}, p-value {p_value.item():.3f}")
    return false_alarms, result


if __name__ == "__main__":
    main(*sys.argv[1:2])
