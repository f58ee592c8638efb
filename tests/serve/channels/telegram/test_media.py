"""Files that come over Telegram, as parts of a message or told in words."""

from __future__ import annotations

import asyncio

import pytest

from tests.pictures import PDF, jpeg, png
from tests.serve.channels.telegram.running_bots import ADA, BOB, running, until
from trimtab.engine.log.message import Media, Text
from trimtab.errors import ProviderFailureDetails

pytestmark = pytest.mark.anyio


async def test_pictures_and_files_become_parts(served):
    served.simulator.files |= {"p": jpeg(9, 9), "d": b"a,b\n1,2\n", "pdf": PDF}
    async with running(served, *["Seen."] * 6, max_file_bytes=1_000) as bot:
        size = {"file_unique_id": "u", "width": 9, "height": 9}
        small, large = {**size, "file_id": "s", "width": 1}, {**size, "file_id": "p"}
        served.simulator.post_user_message(ADA, caption="Look.", photo=[small, large])
        await bot.settled()
        for own in (
            {"file_id": "d", "file_name": "a.csv", "mime_type": "text/csv"},
            {"file_id": "pdf", "file_name": "a.pdf", "mime_type": "application/pdf"},
            {"file_id": "x", "mime_type": "application/zip", "file_name": "a.zip"},
            {"file_id": "gone", "mime_type": "text/plain", "file_name": "gone.txt"},
            {"file_id": "p", "mime_type": "image/png", "file_size": 5_000},
        ):
            served.simulator.post_user_message(ADA, document={"file_unique_id": "u", **own})
            await bot.settled()
        said = [one for one in await bot.said() if one.role == "user"]
        photo = said[0].parts[1]
        assert isinstance(photo, Media)
        assert (photo.kind, photo.mime) == ("image", "image/jpeg")
        assert said[1].text == "[document a.csv]\n a,b\n 1,2\n"
        assert isinstance(said[2].parts[0], Media)
        assert [one.text for one in said[3:]] == [
            "[document (a.zip, application/zip): this model cannot be given such files]",
            "[document (gone.txt, text/plain): it could not be fetched]",
            "[document (image/png): it has 5,000 bytes, and at most 1,000 are taken]",
        ]


async def test_of_a_picture_that_cannot_be_sent_its_sender_and_the_model_are_told(served):
    served.simulator.files |= {"cut": png()[:20], "named": jpeg(9, 9)}
    async with running(served, "What is it?", "A dot.") as bot:
        own = {"file_id": "cut", "file_unique_id": "u", "mime_type": "image/png"}
        served.simulator.post_user_message(
            ADA, caption="Look.", document={**own, "file_name": "a.png"}
        )
        await bot.settled()
        why = "it cannot be decoded: it is cut off after 20 bytes"
        sentence = f"[document (a.png, image/png): {why}]"
        assert (await bot.said())[0].parts == (Text(text="Look."), Text(text=sentence))
        told = f"I cannot accept the document (a.png, image/png): {why}."
        await until(lambda: told in served.simulator.list_bot_texts(ADA))
        # A JPEG that is called a PNG is taken, as what it is.
        served.simulator.post_user_message(ADA, document={**own, "file_id": "named"})
        await bot.settled()
        photo = (await bot.said())[2].parts[0]
        assert isinstance(photo, Media)
        assert photo.mime == "image/jpeg"
        assert "A dot." in served.simulator.list_bot_texts(ADA)[-1]


def test_a_picture_that_the_provider_does_not_take_is_told_and_the_chat_goes_on(served):
    async def run() -> None:
        served.simulator.files["p"] = jpeg(9, 9)
        rejected = ProviderFailureDetails(
            kind="rejected", message="Could not process image", status=400
        )
        async with running(served, rejected, "Hello to you.") as bot:
            size = {"file_unique_id": "u", "width": 9, "height": 9, "file_id": "p"}
            served.simulator.post_user_message(ADA, caption="What is it?", photo=[size])
            await bot.settled()
            assert served.simulator.list_bot_texts(ADA) == [
                (
                    "The model provider rejected this: “Could not process image”. I will ignore it "
                    "from your next message on. Please say it in another way, or send another file."
                )
            ]
            served.simulator.post_user_message(ADA, "Hello?")
            await bot.settled()
            assert served.simulator.list_bot_texts(ADA)[-1] == "Hello to you."
            sent = bot.provider.requests[-1]["messages"][0]["content"]
            assert [part["text"] for part in sent] == [
                "What is it?",
                "[image left out: the provider did not take it · recall m2.1]",
                "Hello?",
            ]

    asyncio.run(run())


async def test_a_voice_message_is_told_where_the_model_cannot_hear(served):
    async with running(served, "I cannot hear.") as bot:
        voice = {"file_id": "v", "file_unique_id": "v", "duration": 3, "mime_type": "audio/ogg"}
        served.simulator.post_user_message(BOB, voice=voice)
        await bot.settled()
        told = (await bot.texts(f"telegram:{BOB}"))[0][1]
        assert told == "[voice message (audio/ogg): this model cannot be given such files]"
