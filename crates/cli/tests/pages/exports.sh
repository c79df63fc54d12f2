# Writes small exports with invented text, one for each format that `undertone data import --as` reads.
mkdir -p slack-export/general Maildir/cur twitter-archive/data stackexchange
echo '[{"id": "U1"}, {"id": "U2"}, {"id": "UB", "is_bot": true}]' >slack-export/users.json
cat >slack-export/general/2024-06-05.json <<'END'
[{"type": "message", "user": "U1", "text": "The ferry is late again today.", "ts": "1717588800.000200"},
 {"type": "message", "user": "U2", "text": "Then we walk to the sea, <@U1>.", "ts": "1717588801.000200"},
 {"type": "message", "user": "UB", "text": "build passed", "ts": "1717588802.000200"}]
END
for user in 3 4 5 6 7 8 9 10 11 12; do
  echo '[{"type": "message", "user": "U'$user'", "text": "We walk along the river in the evening.", "ts": "171758880'$((user % 10))'.0"}]' \
    >slack-export/general/2024-06-$((user + 10)).json
done
cat >result.json <<'END'
{"name": "Rowers", "type": "private_group", "id": 7, "messages": [
 {"id": 1, "type": "service", "date": "2024-06-05T12:00:00", "action": "create_group", "text": ""},
 {"id": 2, "type": "message", "date_unixtime": "1717588800", "from_id": "user11", "text": "Hello there"},
 {"id": 3, "type": "message", "date_unixtime": "1717588801", "from_id": "user12", "text": ["See ", {"type": "bold", "text": "you"}]},
 {"id": 4, "type": "message", "date_unixtime": "1717588802", "from_id": "user11", "text": "news", "forwarded_from": "Ben"},
 {"id": 5, "type": "message", "date_unixtime": "1717588803", "from_id": "user11", "text": "", "photo": "p.jpg"},
 {"id": 6, "type": "message", "date_unixtime": "1717588804", "from_id": "user11", "text": "Good night"}]}
END
printf '5/6/24, 12:00 - Ada: The ferry is late.\n6/6/24, 12:00 - Ben: Again?\n' >chat.txt
echo '{"messages": [{"type": "Default", "timestamp": "2024-06-05T12:00:00.5+00:00", "content": "High water today", "author": {"id": "501", "isBot": false}}]}' \
  >channel.json
printf 'From ada Wed Jun  5 12:00:00 2024\nFrom: Ada <ada@example.org>\nDate: Wed, 05 Jun 2024 12:00:00 +0000\n\nHello Ben\n-- \nAda\n' >Inbox.mbox
tail -n +2 Inbox.mbox >Maildir/cur/1.example:2,S
echo 'window.YTD.account.part0 = [{"account": {"accountId": "77"}}]' >twitter-archive/data/account.js
echo 'window.YTD.tweets.part0 = [{"tweet": {"full_text": "High water", "created_at": "Wed Jun 05 12:00:00 +0000 2024"}}]' \
  >twitter-archive/data/tweets.js
echo '<posts><row Id="1" PostTypeId="1" OwnerUserId="5" CreationDate="2024-06-05T12:00:00.653" Body="&lt;p&gt;Why so high?&lt;/p&gt;"/></posts>' \
  >stackexchange/Posts.xml
echo '{"author": "ada", "body": "Because of the rain", "created_utc": 1717588800}' >comments.jsonl
echo '{"user_id": "ada", "messages": [{"role": "user", "content": "When is low water?"}, {"role": "assistant", "content": "At noon."}]}' >chats.jsonl
