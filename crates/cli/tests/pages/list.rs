// The pages that run here, each with the commands that bring what it takes for granted. `posts` and `public_text` of the prelude write
// invented texts, and `tiny` trains a model in seconds.

pages! {
    readme: "README.md", "
        posts posts.jsonl 2000 user_id text
        undertone data prose ~/.cargo/registry/src -o public.jsonl
    ";
    commands: "docs/reference/commands.md", "
        posts posts.jsonl 2000 user_id text
        public_text public.txt
        undertone data import --synthetic --users 30 -o rows.parquet
        undertone data import --synthetic --users 30 --seed 2 -o public.parquet
        sed -e 's/name = .*/name = \"my-run\"/' -e 's/users_per_round = 200/users_per_round = 20/' examples/quickstart-transformer.toml >my-run.toml
        sed -i 's|^source = .*|source = { kind = \"jsonl\", path = \"posts.jsonl\" }\\nvocabulary = { kind = \"public_corpus\", path = \"public.txt\", size = 100 }|' my-run.toml
        printf 'name = \"levels\"\\nrun = \"my-run.toml\"\\nseeds = [1]\\n[[axis]]\\nname = \"level\"\\nvalues = [{ name = \"low\", set = [\"rounds=2\"] }]\\n' >my-sweep.toml
        sed -e 's/^rounds = .*/rounds = 40/' -e 's/^population = .*/population = 60000/' -e 's/report_goal = .*/report_goal = 300/' examples/timers.toml >few-timers.toml
    ";
    accountants: "docs/reference/accountants.md", "";
    mechanisms: "docs/reference/mechanisms.md", "";
    a_sum_nobody_sees_the_parts_of: "docs/guide/a-sum-nobody-sees-the-parts-of.md", "";
    audit: "docs/guide/audit.md", "";
    dashboard: "docs/guide/dashboard.md", "";
    data: "docs/guide/data.md", "";
    data_tools: "docs/guide/data-tools.md", "
        git init -q my-repository
        git -C my-repository -c user.name=ada -c user.email=ada@example.org commit -q --allow-empty -m 'Read the table. Then sort the rows by time.'
        posts public-docs.jsonl 40 user_id text
        undertone data import --jsonl public-docs.jsonl -o public-docs.parquet
        undertone data import --synthetic --users 30 -o private.parquet
        undertone data import --synthetic --users 30 --seed 2 -o public.parquet
        undertone data import --git my-repository -o rows.parquet
    ";
    embed_the_device: "docs/guide/embed-the-device.md", "";
    ftrl: "docs/guide/ftrl.md", "";
    import_an_export: "docs/guide/import-an-export.md", "bash crates/cli/tests/pages/exports.sh";
    operate_a_service: "docs/guide/operate-a-service.md", "
        sed 's/^name = .*/name = \"next-word\"/' examples/federated.toml >task.toml
        cp examples/federated-words.txt .
    ";
    publish: "docs/guide/publish.md", "
        tiny my-run
        rm -r runs
        for user in 1 2 3 4 5 6; do
          echo '{\"user_id\": \"'$user'\", \"text\": \"w1 w2 w3 w4 w1 w2 w5\"}'
        done >public.jsonl
    ";
    run_a_federated_task: "docs/guide/run-a-federated-task.md", "";
    size_a_service: "docs/guide/size-a-service.md", "";
    the_epsilon_of_my_run: "docs/guide/the-epsilon-of-my-run.md", "";
    train_on_my_posts: "docs/guide/train-on-my-posts.md", "posts posts.jsonl 1991 author body";
    transformers: "docs/guide/transformers.md", "
        undertone train examples/quickstart-transformer.toml --set name=my-run --set rounds=2 --set data.source.users=300
    ";
    use_a_model: "docs/guide/use-a-model.md", "tiny quickstart";
    why_trust_it: "docs/guide/why-trust-it.md", "tiny quickstart";
}
