use ct_merkle::mem_backed_tree::MemoryBackedTree;
use sha2::Sha256;

use super::*;
use crate::Hash;

fn grow(leaves: &[Vec<u8>]) -> (Frontier, Vec<Hash>) {
    let (mut frontier, mut stored) = (Frontier::default(), Vec::new());
    for leaf in leaves {
        frontier.push(Hash::leaf(leaf), |hash| stored.push(*hash));
        assert_eq!(stored.len() as u64, stored_count(frontier.size()));
    }
    (frontier, stored)
}

fn numbered(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|n| format!("leaf {n}").into_bytes())
        .collect()
}

fn hashes(texts: &[&str]) -> Vec<Hash> {
    let parse = |text: &&str| Hash::from_hex(text.as_bytes()).expect("hex");
    texts.iter().map(parse).collect()
}

/// The leaves of the reference implementation's tests.
fn reference() -> Vec<Vec<u8>> {
    let mut leaves = vec![
        vec![],
        vec![0x00],
        vec![0x10],
        vec![0x20, 0x21],
        vec![0x30, 0x31],
    ];
    leaves.push((0x40..=0x43).collect());
    leaves.push((0x50..=0x57).collect());
    leaves.push((0x60..=0x6f).collect());
    leaves
}

const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const N01: &str = "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7";
const N23: &str = "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e";
const N47: &str = "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4";
const L4: &str = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b";
const N67: &str = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0";
const N45: &str = "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a";

#[test]
fn heads_are_those_of_rfc_6962() {
    let leaves = reference();
    let (_, stored) = grow(&leaves);
    assert_eq!(Frontier::default().root().to_string(), EMPTY);
    assert_eq!(root(&stored, 0).expect("root").to_string(), EMPTY);
    for (size, expected) in (1..).zip(ROOTS) {
        let (frontier, _) = grow(&leaves[..size]);
        assert_eq!(frontier.root().to_string(), expected, "size {size}");
        let again = root(&stored, size as u64).expect("root");
        assert_eq!(again.to_string(), expected, "size {size}");
    }
}

#[test]
fn proofs_are_those_of_rfc_6962() {
    let (_, stored) = grow(&reference());
    for (index, size, expected) in [
        (0, 1, vec![]),
        (0, 8, vec![N01, N23, N47]),
        (5, 8, vec![L4, N67, ROOTS[3]]),
        (2, 3, vec![ROOTS[1]]),
        (1, 5, vec![ROOTS[0], N23, L4]),
    ] {
        let path = inclusion(&stored, index, size).expect("path");
        assert_eq!(path, hashes(&expected), "leaf {index} of {size}");
    }
    for (old, new, expected) in [
        (1, 1, vec![]),
        (1, 8, vec![N01, N23, N47]),
        (6, 8, vec![N45, N67, ROOTS[3]]),
        (2, 5, vec![N23, L4]),
    ] {
        let path = consistency(&stored, old, new).expect("path");
        assert_eq!(path, hashes(&expected), "{old} to {new}");
    }
}

#[test]
fn an_independent_implementation_agrees_on_all_small_trees() {
    let leaves = numbered(64);
    let (_, stored) = grow(&leaves);
    let mut other = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    for new in 1..=leaves.len() {
        other.push(leaves[new - 1].clone());
        let new_root = root(&stored, new as u64).expect("root");
        assert_eq!(new_root.0[..], other.root().as_bytes()[..], "size {new}");
        for index in 0..new {
            let path = inclusion(&stored, index as u64, new as u64).expect("path");
            let theirs = other.prove_inclusion(index);
            assert_eq!(flat(&path), theirs.as_bytes(), "leaf {index} of {new}");
        }
        for old in 1..new {
            let path = consistency(&stored, old as u64, new as u64).expect("path");
            let theirs = other.prove_consistency(new - old);
            assert_eq!(flat(&path), theirs.as_bytes(), "{old} to {new}");
        }
    }
}

fn flat(path: &[Hash]) -> Vec<u8> {
    path.iter().flat_map(|hash| hash.0).collect()
}

#[test]
fn a_proof_holds_for_its_leaf_and_for_no_other() {
    let leaves = numbered(64);
    let (_, stored) = grow(&leaves);
    for size in 1..=64_u64 {
        let head = root(&stored, size).expect("root");
        for index in 0..size {
            let leaf = Hash::leaf(&leaves[at(index)]);
            let path = inclusion(&stored, index, size).expect("path");
            assert!(verify_inclusion(&leaf, index, size, &path, &head));
            for wrong in 0..=size {
                let same = wrong == index;
                assert_eq!(verify_inclusion(&leaf, wrong, size, &path, &head), same);
            }
            assert!(!verify_inclusion(&Hash::ZERO, index, size, &path, &head));
            assert!(!verify_inclusion(&leaf, index, size, &path, &Hash::ZERO));
            for changed in changes(&path) {
                assert!(!verify_inclusion(&leaf, index, size, &changed, &head));
            }
        }
    }
}

#[test]
fn a_consistency_proof_holds_for_its_heads_and_for_no_others() {
    let (_, stored) = grow(&numbered(64));
    let roots: Vec<Hash> = (0..=64).map(|n| root(&stored, n).expect("root")).collect();
    for new in 0..=64_u64 {
        for old in 0..=new {
            let (a, b) = (&roots[at(old)], &roots[at(new)]);
            let path = consistency(&stored, old, new).expect("path");
            assert!(verify_consistency(old, a, new, b, &path), "{old} to {new}");
            if old == 0 {
                continue;
            }
            assert!(!verify_consistency(old, &Hash::ZERO, new, b, &path));
            assert!(!verify_consistency(old, a, new, &Hash::ZERO, &path));
            if old != new {
                assert!(!verify_consistency(new, b, old, a, &path));
                assert!(!verify_consistency(old, b, new, a, &path));
            }
            for changed in changes(&path) {
                assert!(
                    !verify_consistency(old, a, new, b, &changed),
                    "{old} to {new}"
                );
            }
        }
    }
}

/// Every path that differs in one place: a bit, a hash less, a hash more, two exchanged.
fn changes(path: &[Hash]) -> Vec<Vec<Hash>> {
    let mut all = vec![
        [path, &[Hash::ZERO]].concat(),
        [&[Hash::ZERO], path].concat(),
    ];
    for place in 0..path.len() {
        let mut flipped = path.to_vec();
        flipped[place].0[7] ^= 0x10;
        all.push(flipped);
        let mut shorter = path.to_vec();
        shorter.remove(place);
        all.push(shorter);
        if place > 0 {
            let mut exchanged = path.to_vec();
            exchanged.swap(place - 1, place);
            all.push(exchanged);
        }
    }
    all
}

#[test]
fn nothing_is_proved_outside_of_the_tree() {
    let (_, stored) = grow(&numbered(8));
    assert!(inclusion(&stored, 8, 8).is_err());
    assert!(inclusion(&stored, 0, 0).is_err());
    assert!(consistency(&stored, 5, 4).is_err());
    assert!(inclusion(&stored, 0, 16).is_err());
}

fn at(index: u64) -> usize {
    usize::try_from(index).expect("a small number")
}
