"""Words of a question that name no feature."""

from __future__ import annotations

from typing import Final

from reports.answers.support.vocabulary import FILLER_WORDS

WORDS: Final = """
    a about above actually adapter adapters advance after again against all allow allowed allows already also
    alternative alternatively always am an another any anybody anymore anyone anything appreciated are aren't around as
    ask asking at attention available avoid back base based be because been before behind being below best better
    between bit bits bitsandbytes bnb both break breaks broken but by called can can't cannot cause causes chance change
    changes chat checkpoint checkpoints choose clear cluster code colab combination combinations combine combined
    combining come comes compare compared compatibility compatible config configuration configurations confirm confused
    correct correctly could couldn't cpu cpus crash crashes cuda current currently custom data dataset datasets day dear
    default depend dependencies dependency device devices did didn't different difficult directly distributed do docker
    docs documentation does doesn't doing don't done down due during each easiest easy either else enable enabled
    enabling end enough environment error errors especially etc even ever every everyone everything exact exactly
    example examples exist exists expect expected experience experienced experiments explain face facing fail failed
    failing fails far fast faster feature few find fine fine-tune fine-tuned fine-tunes finetune finetuned finetunes
    finetuning first fit fits fix fixed follow following for found from further get gets getting give given gloo go goes
    going good got gpu gpus great guide guys had hard hardware has have having hello help helpful hey hf hi hint how
    however huge hugging huggingface i i'd i'll i'm i've idea if implementation implemented install installed installing
    instead instruct instruction instructions into is isn't issue issues it it's its job jobs just kaggle keep kind know
    known large larger last later latest launch layer layers least let libraries library like likely limitation limited
    linux list little llm llms lm loaded loading loads local locally long look looking low machine made main make makes
    making many may maybe me mean means meant memory method methods might mixed mode model models modern more most much
    must my nccl need needed needs never new newer newest next nice node normal normally not note notebook now number
    nvidia of off ok okay old older once one only onto optimiser optimizer or original other our out over own package
    packages parallel parallelism parameter parameters particular peft people per perform performance personal pip plan
    planned planning platform please possible possibly practice pre-trained precision prefer preferred prepare
    pretrained problem problems process project proper properly provide pytorch quantisation quantise quantised
    quantization quantize quantized question questions quite really refuse refused refuses reject rejected rejects
    reason recent recently recommend recommendation recommended recommends release released releases reliable reliably
    require required requirement requirements requires right run running runs safe safely same say script scripts see
    seem seems server set sets setting settings setup several sharded sharding should show side similar simple simply
    simultaneously since small smaller so some somebody somehow someone something sorry stable stack start started step
    steps still stuff style such suggest suggested suggestion suggestions suitable support supported supporting supports
    sure system take task tasks team technique tell than thank thanks that the their them then there these they thing
    things think this those through time tips to together too tool toolkit tools torch torchrun train trained training
    trainings trains transformers tried tries try trying tune tuning two type ubuntu unfortunately until up update
    upgrade us usage use used useful user users uses usual usually vanilla variant various version versions very via
    vram wait want wanted wants was way ways we weight weights well went were what what's when where whether which while
    who why will wish within won't wonder wondering work worked working works worth would wouldn't write wrong yes yet
    you your
"""
FILLERS: Final = FILLER_WORDS | frozenset(WORDS.split())
