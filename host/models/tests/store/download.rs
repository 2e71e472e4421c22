//! A download that breaks is continued where it broke, and nothing is used that was not verified.

use std::{fs, ops::ControlFlow, sync::Barrier, thread, time::Duration};

use gristmill_core::error::Code;
use gristmill_models::{
    Gguf,
    store::{Digest, Silent, Stage, Store, StoreError, Update},
};

use crate::{
    fixture::{Model, split},
    hub::{COMMIT, Reply, Repository, Served, Server},
    support::{Room, child, parts, role, run, stop_at},
};

const SOURCE: &str = "hf:org/repo";

fn model(salt: u32) -> Vec<u8> {
    let mut model = Model::new(salt);
    model.elements = 5000;
    model.bytes()
}

fn one(salt: u32) -> Repository {
    Repository::new(vec![Served::new("m-Q4_0.gguf", model(salt))])
}

fn read(found: &gristmill_models::store::Located) -> Vec<u8> {
    fs::read(&found.paths[0]).unwrap()
}

#[test]
fn a_file_arrives_whole_with_all_that_is_known_of_it() {
    let hub = one(1).serve();
    let room = Room::with(hub.sources());
    let mut seen = Vec::new();
    let mut note = |update: &Update<'_>| {
        seen.push((update.stage, update.completed, update.total));
        ControlFlow::Continue(())
    };
    let found = room.store.pull(SOURCE, None, &mut note).unwrap();
    assert_eq!(read(&found), model(1));
    assert_eq!(found.id, "org/repo:Q4_0");
    assert_eq!(found.source, "hf:org/repo");
    assert_eq!(found.revision.as_deref(), Some(COMMIT));
    assert_eq!(found.license.as_deref(), Some("mit"));
    assert!(parts(&room.root()).is_empty());

    let size = model(1).len() as u64;
    assert!(seen.contains(&(Stage::Downloading, size, Some(size))), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1 <= pair[1].1));
    assert_eq!(seen.last().map(|last| last.0), Some(Stage::Done));

    room.store.pull(SOURCE, Some("again"), &mut Silent).unwrap();
    assert_eq!(hub.downloads().len(), 1, "what is there is not fetched again");
}

#[test]
fn a_download_cut_at_any_point_is_continued_from_there() {
    let length = model(1).len();
    for cut in [1, 2, 100, length / 2, length - 1] {
        let repo = one(1);
        repo.change(|file| file.cuts = vec![cut]);
        let hub = repo.serve();
        let room = Room::with(hub.sources());
        let error = room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::UpstreamUnavailable, "{error}");
        assert!(error.to_string().contains("try again to continue"), "{error}");
        assert!(room.tree().is_empty());
        assert_eq!(parts(&room.root())[0].1, cut as u64);

        // Another process, later.
        let later = Store::open_with(room.root(), hub.sources()).unwrap();
        assert_eq!(read(&later.pull(SOURCE, None, &mut Silent).unwrap()), model(1));
        let requests = hub.downloads();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[1].header("range"), Some(format!("bytes={cut}-").as_str()));
        assert_eq!(requests[1].header("if-range"), repo.0.lock().unwrap()[0].etag.as_deref());
        assert!(parts(&room.root()).is_empty());
    }
}

#[test]
fn one_pull_continues_by_itself_as_often_as_it_may() {
    let repo = one(1);
    repo.change(|file| file.cuts = vec![0, 10, 100, 1000]);
    let hub = repo.serve();
    let mut sources = hub.sources();
    sources.retries = 4;
    let room = Room::with(sources.clone());
    assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), model(1));
    let ranges: Vec<_> =
        hub.downloads().iter().map(|r| r.header("range").map(str::to_owned)).collect();
    let at = |start: usize| Some(format!("bytes={start}-"));
    assert_eq!(ranges, [None, None, at(10), at(110), at(1110)]);

    repo.change(|file| file.cuts = vec![0; 5]);
    let room = Room::with(sources);
    assert!(room.store.pull(SOURCE, None, &mut Silent).is_err(), "five breaks are one too many");
}

#[test]
fn a_file_that_changed_meanwhile_is_fetched_anew() {
    for published in [true, false] {
        for careless in [true, false] {
            let repo = one(1);
            repo.change(|file| {
                file.cuts = vec![5000];
                file.published = published;
            });
            let hub = repo.serve();
            let room = Room::with(hub.sources());
            room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
            repo.change(|file| {
                *file = Served { published, careless, ..Served::new("m-Q4_0.gguf", model(2)) };
            });
            let result = room.store.pull(SOURCE, None, &mut Silent);
            if !published && careless {
                // A server that ignores the validator and publishes no digest cannot be caught
                // here; the bytes still had to pass the model reader.
                continue;
            }
            assert_eq!(read(&result.unwrap()), model(2), "published {published}");
        }
    }
}

#[test]
fn a_mixed_up_part_is_caught_by_the_digest_and_fetched_anew() {
    let repo = one(1);
    repo.change(|file| file.cuts = vec![5000]);
    let hub = repo.serve();
    let room = Room::with(hub.sources());
    room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
    let part = room.root().join("downloads").join(&parts(&room.root())[0].0);
    let mut bytes = fs::read(&part).unwrap();
    bytes[4000] ^= 1;
    fs::write(&part, bytes).unwrap();
    assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), model(1));
    let ranges: Vec<bool> = hub.downloads().iter().map(|r| r.header("range").is_some()).collect();
    assert_eq!(ranges, [false, true, false]);
}

#[test]
fn a_part_longer_than_the_file_or_of_another_file_is_dropped() {
    for spoil in ["longer", "garbled state", "no state"] {
        let repo = one(1);
        repo.change(|file| file.cuts = vec![5000]);
        let hub = repo.serve();
        let room = Room::with(hub.sources());
        room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        let part = room.root().join("downloads").join(&parts(&room.root())[0].0);
        match spoil {
            "longer" => fs::write(&part, vec![0; 1 << 20]).unwrap(),
            "garbled state" => fs::write(part.with_extension("json"), "{").unwrap(),
            _ => fs::remove_file(part.with_extension("json")).unwrap(),
        }
        assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), model(1), "{spoil}");
    }
}

#[test]
fn a_server_without_ranges_or_validators_still_serves() {
    for (ranges, etag, second) in [
        (false, Some("\"abc\""), Some("bytes=5000-")),
        (true, None, Some("bytes=5000-")),
        (true, Some("W/\"weak\""), Some("bytes=5000-")),
    ] {
        let repo = one(1);
        repo.change(|file| {
            file.cuts = vec![5000];
            file.ranges = ranges;
            file.etag = etag.map(str::to_owned);
        });
        let hub = repo.serve();
        let room = Room::with(hub.sources());
        room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), model(1));
        assert_eq!(hub.downloads()[1].header("range"), second);
    }
    // Neither validator nor digest: nothing can tell whether the rest belongs to it.
    let repo = one(1);
    repo.change(|file| {
        *file = Served { cuts: vec![5000], etag: None, published: false, ..file.clone() };
    });
    let hub = repo.serve();
    let room = Room::with(hub.sources());
    room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
    assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), model(1));
    assert_eq!(hub.downloads()[1].header("range"), None);
}

#[test]
fn bytes_with_another_digest_are_not_kept() {
    // The head of the answer and the list promise one thing, the body is another.
    let repo = one(1);
    let inner = repo.clone();
    let hub = Server::start(move |request| {
        let mut reply = inner.reply(request);
        if !request.path.starts_with("/api/") {
            *reply.body.last_mut().unwrap() ^= 1;
        }
        reply
    });
    let room = Room::with(hub.sources());
    let error = room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
    let expected = Digest::of(&model(1)).hex();
    assert!(matches!(&error, StoreError::Digest { expected: e, .. } if *e == expected), "{error}");
    assert!(parts(&room.root()).is_empty() && room.tree().is_empty());

    // What the caller expects comes before what the server says of itself.
    let hub = one(1).serve();
    let room = Room::with(hub.sources());
    let source = format!("{SOURCE}@{}", Digest::of(b"other"));
    let error = room.store.pull(&source, None, &mut Silent).unwrap_err();
    assert_eq!(error.code(), Code::DigestMismatch);
    assert_eq!(hub.downloads().len(), 1);
    assert!(parts(&room.root()).is_empty() && room.tree().is_empty());
}

#[test]
fn lengths_that_do_not_agree_are_refused() {
    type Change = fn(&mut Reply);
    let cases: [(&str, Change, &str); 5] = [
        ("more than published", |r| r.body.extend([0; 9]), "are published"),
        ("less than published", |r| r.body.truncate(9), "are published"),
        ("a length too long", |r| r.length = Some(Some(r.body.len() + 1)), "are published"),
        ("no length", |r| r.length = Some(None), "no content-length"),
        (
            "a linked size of its own",
            |r| {
                for (name, value) in &mut r.headers {
                    if name == "X-Linked-Size" {
                        "5".clone_into(value);
                    }
                }
            },
            "are published",
        ),
    ];
    for (label, change, expected) in cases {
        let repo = one(1);
        let hub = Server::start(move |request| {
            let mut reply = repo.reply(request);
            if !request.path.starts_with("/api/") {
                change(&mut reply);
            }
            reply
        });
        let room = Room::with(hub.sources());
        let error = room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::UpstreamError, "{label}: {error}");
        assert!(error.to_string().contains(expected), "{label}: {error}");
        assert!(parts(&room.root()).is_empty() && room.tree().is_empty(), "{label}");
    }
}

#[test]
fn a_part_of_the_wrong_place_is_refused() {
    for range in ["bytes 0-9/10", "bytes 4999-20000/30000", "bytes */30000", "nonsense"] {
        let repo = one(1);
        repo.change(|file| file.cuts = vec![5000]);
        let hub = Server::start(move |request| {
            let mut reply = repo.reply(request);
            for (name, value) in &mut reply.headers {
                if name == "Content-Range" {
                    range.clone_into(value);
                }
            }
            reply
        });
        let room = Room::with(hub.sources());
        room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        let error = room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::UpstreamError, "{range}: {error}");
        assert_eq!(parts(&room.root())[0].1, 5000, "what has arrived is kept");
    }
}

#[test]
fn what_arrives_and_is_no_model_leaves_nothing_behind() {
    let whole = model(1);
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n".to_vec();
    for (bytes, expected) in [
        (pointer, "Git LFS pointer"),
        (b"<html>sorry</html>".to_vec(), "web page"),
        (whole[..whole.len() - 32].to_vec(), "model.gguf"),
    ] {
        let hub = Repository::new(vec![Served::new("m.gguf", bytes)]).serve();
        let room = Room::with(hub.sources());
        let error = room.store.pull(SOURCE, Some("m"), &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::InvalidRequest, "{error}");
        let text = error.to_string();
        assert!(text.contains(expected) && text.contains("hf:org/repo"), "{text}");
        assert!(!text.contains("staging"), "{text}");
        assert!(parts(&room.root()).is_empty() && room.tree().is_empty());
    }
}

#[test]
fn a_silent_server_is_left_and_a_pull_can_stop_while_it_is_silent() {
    for with_head in [false, true] {
        let repo = one(1);
        let hub = Server::start(move |request| {
            let mut reply = repo.reply(request);
            if !request.path.starts_with("/api/") {
                reply.hang = true;
                reply.cut = Some(100);
                if !with_head {
                    reply.body.clear();
                }
            }
            reply
        });
        let mut sources = hub.sources();
        sources.silence = Duration::from_millis(400);
        let room = Room::with(sources.clone());
        let error = room.store.pull(SOURCE, None, &mut Silent).unwrap_err();
        assert_eq!(error.code(), Code::UpstreamTimeout, "{error}");

        // With an hour to wait, stopping does not wait.
        sources.silence = Duration::from_secs(3600);
        let room = Room::with(sources);
        let error = room.store.pull(SOURCE, None, &mut stop_at(8)).unwrap_err();
        assert!(matches!(error, StoreError::Cancelled), "{error}");
        assert!(room.tree().is_empty());
    }
}

#[test]
fn a_stopped_download_is_continued() {
    let hub = one(1).serve();
    let room = Room::with(hub.sources());
    let mut stop = |update: &Update<'_>| match update.stage {
        Stage::Downloading if update.completed > 0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let error = room.store.pull(SOURCE, None, &mut stop).unwrap_err();
    assert!(matches!(error, StoreError::Cancelled), "{error}");
    assert_eq!(parts(&room.root())[0].1, model(1).len() as u64);
    assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), model(1));
    assert_eq!(hub.downloads().len(), 1, "all of it was here");
}

#[test]
fn a_killed_download_is_continued() {
    const NAME: &str = "download::a_killed_download_is_continued";
    let big = || {
        let mut model = Model::new(3);
        model.elements = 1 << 20;
        model.bytes()
    };
    if let Some(role) = role() {
        let mut sources = gristmill_models::store::Sources::default();
        sources.hub.clone_from(&role[1]);
        let limit: u64 = role[2].parse().unwrap();
        let mut die = |update: &Update<'_>| {
            if update.stage == Stage::Downloading && update.completed >= limit {
                std::process::abort();
            }
            ControlFlow::Continue(())
        };
        let store = Store::open_with(&role[0], sources).unwrap();
        store.pull(SOURCE, None, &mut die).unwrap();
        return;
    }
    let hub = Repository::new(vec![Served::new("m.gguf", big())]).serve();
    let room = Room::with(hub.sources());
    let root = room.root().display().to_string();
    for mib in [1_u64, 2, 3] {
        let limit = (mib << 20).to_string();
        assert!(!run(child(NAME, &[&root, &hub.url(), &limit])).success());
        assert!(room.names().is_empty());
        assert!(parts(&room.root())[0].1 >= mib << 20);
    }
    assert_eq!(read(&room.store.pull(SOURCE, None, &mut Silent).unwrap()), big());
    let ranges = hub.downloads().iter().filter(|r| r.header("range").is_some()).count();
    assert_eq!(ranges, 3, "each went on where the one before it died");
    let kept: Vec<_> = room.tree().into_keys().collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
}

#[test]
fn pulls_of_the_same_file_at_once_fetch_it_once() {
    let hub = one(1).serve();
    let room = Room::with(hub.sources());
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = Store::open_with(room.root(), hub.sources()).unwrap();
                start.wait();
                store.pull(SOURCE, Some("m"), &mut Silent).unwrap();
            });
        }
    });
    assert_eq!(hub.downloads().len(), 1, "three waited and found it");
    assert_eq!(read(&room.store.verify("m", &mut Silent).unwrap()), model(1));
    assert!(parts(&room.root()).is_empty());
}

#[test]
fn all_parts_of_a_split_model_arrive() {
    let mut files: Vec<Served> = split(3, 1)
        .into_iter()
        .enumerate()
        .map(|(i, bytes)| Served::new(&format!("BF16/m-BF16-{:05}-of-00003.gguf", i + 1), bytes))
        .collect();
    files.push(Served::new("m-Q4_0.gguf", model(1)));
    let repo = Repository::new(files);
    let hub = repo.serve();
    let room = Room::with(hub.sources());
    let found = room.store.pull("hf:org/repo:bf16", None, &mut Silent).unwrap();
    assert_eq!(found.id, "org/repo:BF16");
    assert_eq!(Gguf::open(&found.paths[0]).unwrap().tensors().len(), 3);

    repo.0.lock().unwrap().remove(1);
    let error = room.store.pull("hf:org/repo:bf16", Some("x"), &mut Silent).unwrap_err();
    assert!(error.to_string().contains("without its part BF16/m-BF16-00002"), "{error}");
}
