"""Which sentences the offline model keeps as facts: most of what people say of themselves, little of all else."""

from __future__ import annotations

import json

from gateway.agent.model import ChatMessage, ModelRequest
from gateway.agent.offline.work import facts_of

FACTS = """
My dog is called Rex.
I prefer trains to planes.
I live in Turin with my two sons.
My sister lives in Lisbon.
Our daughter starts school in September.
We have two children.
I play the cello in an orchestra.
I drive an old Volvo.
I don't eat meat.
I can't stand coriander.
I'm allergic to peanuts.
I'm a nurse at the city hospital.
I've lived in Graz since 2011.
I've got three cats.
I grew up in Bergen.
I was born in 1984.
I used to work for a bank.
I am learning Spanish.
I'm training for a marathon in May.
I want to write a novel.
I have to renew my passport in June.
I promised to call Eva on Friday.
Eva is my sister.
My wife's birthday is on 3 May.
My brother works for the railway.
I usually get up at five because I run before work.
I quit my job last week.
We moved to Vienna in spring.
Call me Max.
You can call me Kim.
No, my dog is called Max.
Remember that the release is on Friday.
Yesterday we adopted a kitten.
I never drink coffee after noon.
I'm not a morning person.
I am afraid of dogs.
Ich wohne in Graz.
Mein Hund heißt Bello.
Ich esse kein Fleisch.
Meine Schwester arbeitet bei der Bahn.
Wir haben zwei Kinder.
Ich heiße Jana.
Ich lerne Spanisch.
""".strip().splitlines()

NONE = """
I have no idea.
I have no idea what that means.
My code is broken.
Translate: I love my dog.
I have a question.
I am back.
I'm not sure about that.
I think you are right.
I love it!
I like your answer.
I am trying to install Python.
I have tried that already.
I need help with this.
I want you to be brief.
I want to know how tall it is.
My question is about chess.
My test is failing again.
My laptop is so slow.
I get an error when I start it.
I see.
I understand, thank you.
I'm done.
I am looking for a good book.
I was wondering about the weather.
Write a poem: my cat is old.
Explain why I am always tired.
Summarize: we went to Rome and met Eva.
If I were rich I would travel.
Imagine I live on Mars.
He said "I live in Rome".
Is my dog too fat?
Thanks, that helps.
I guess so.
I hope you are well.
I meant the other one.
I found a bug in it.
I just read that.
I have to go now.
I am just kidding.
I'm in a hurry.
The weather is nice today.
Ich habe keine Ahnung.
Ich weiß nicht.
Übersetze: Ich wohne in Rom.
Ich verstehe.
""".strip().splitlines()


def facts(text: str) -> list[str]:
    said = json.dumps({"who": "person", "text": text}, ensure_ascii=False)
    answered = facts_of(ModelRequest(system="", messages=(ChatMessage(role="user", text=said),), purpose="facts"))
    return [entry["fact"].removeprefix("They say: ") for entry in json.loads(answered)]


def test_what_people_say_of_themselves_is_kept() -> None:
    missed = [sentence for sentence in FACTS if not facts(sentence)]
    assert missed == []


def test_what_is_said_in_passing_is_not() -> None:
    taken = [sentence for sentence in NONE if facts(sentence)]
    assert taken == []


def test_what_an_order_is_about_is_no_fact_and_what_stands_before_it_is() -> None:
    assert facts("I live in Turin. Translate into German:\nI love my dog.\nMy cat is old.") == ["I live in Turin."]
    assert facts("My cat is called Tom.\n```\nmy name is x\n```\n> I live in Rome\nI play chess.") == [
        "My cat is called Tom.", "I play chess.",
    ]  # fmt: skip


def test_what_is_to_be_remembered_is_kept_without_its_introduction() -> None:
    assert facts("Please remember: the door code is in the blue book") == ["the door code is in the blue book"]
