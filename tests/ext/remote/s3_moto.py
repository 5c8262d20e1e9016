#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
# promise: honest-11
"""Reads a bucket from moto's S3 server on the loopback interface: s3_moto.py PROGRAM FOLDER.

The server checks signatures with botocore's code, as S3 does. The script compares keys and bytes
with the objects that boto3 has stored. Skipped (77) if moto and boto3 are not installed."""
import hashlib
import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import urllib.request

try:
    import boto3
    import botocore.exceptions
    import moto
    from moto.server import ThreadedMotoServer
except ImportError:
    print("skipped: needs moto[server] and boto3")
    sys.exit(77)

NAMES = ["a", "b c+d", "e&f=g", "h%2Fi", "\u00e4\u20ac.jpg", "deep/er/x~!*'();:@$,?#[]", "<k>"]


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(AWS_ACCESS_KEY_ID="root", AWS_SECRET_ACCESS_KEY="root",
                      AWS_DEFAULT_REGION="us-east-1")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
    s3 = boto3.client("s3", endpoint_url=url)
    s3.create_bucket(Bucket="photos")
    draw = random.Random(7)
    expected = {}
    for i, name in enumerate(NAMES + [f"many/{i:04d}" for i in range(1100)]):
        content = draw.randbytes([200_000, 1, 70_001, 3][i % 4] if i < len(NAMES) else 5)
        s3.put_object(Bucket="photos", Key="train/" + name, Body=content)
        expected["train/" + name] = hashlib.sha256(content).hexdigest()
    s3.put_object(Bucket="photos", Key="other", Body=b"x")
    iam = boto3.client("iam", endpoint_url=url)
    iam.create_user(UserName="reader")
    rules = {"Version": "2012-10-17",
             "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
    iam.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(rules))
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    urllib.request.urlopen(
        urllib.request.Request(url + "/moto-api/reset-auth", data=b"0", method="POST",
                               headers={"Content-Type": "text/plain"})).read()

    known = boto3.client("s3", endpoint_url=url, aws_access_key_id=key["AccessKeyId"],
                         aws_secret_access_key=key["SecretAccessKey"])
    try:
        known.list_objects_v2(Bucket="photos", Prefix="train/")
    except botocore.exceptions.ClientError as rejected:
        print(f"skipped: this moto, {moto.__version__}, rejects boto3's own signature: {rejected}")
        server.stop()
        sys.exit(77)

    listing = folder / "listing"
    environment = {**os.environ, "AWS_ENDPOINT_URL_S3": url, "PENSTOCK_S3_LISTING": str(listing),
                   "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
                   "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"], "no_proxy": "127.0.0.1"}
    done = subprocess.run([program, "[moto]"], env=environment)
    lines = listing.read_text(encoding="utf-8").split("\n")
    found = dict(zip(lines[0::2], lines[1::2]))
    server.stop()
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            print(f"{name!r}: expected {expected.get(name)}, found {found.get(name)}")
    print(f"{len(found)} objects compared")
    sys.exit(done.returncode != 0 or found != expected)


if __name__ == "__main__":
    main()
