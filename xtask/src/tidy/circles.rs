//! Checks that the modules of a crate form no circle: of two modules side by side, at most one uses the other.
//!
//! Parents and children may use each other. Tests and programs (`src/bin`) are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::system::root;

/// A module, by its path below the crate: `["state", "run"]`.
type Module = Vec<String>;
type Uses = BTreeMap<Module, BTreeSet<Module>>;

/// Checks the crates that `files` belong to. Returns one violation per circle.
///
/// # Errors
/// Returns an error if a source cannot be read or is not Rust.
pub(super) fn check(files: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut crates: BTreeMap<PathBuf, Vec<&Path>> = BTreeMap::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let Some(sources) = path.ancestors().find(|folder| folder.ends_with("src")) else { continue };
        let is_program = path.starts_with(sources.join("bin"));
        if !is_program {
            crates.entry(sources.to_owned()).or_default().push(path);
        }
    }
    let mut broken = Vec::new();
    for (sources, files) in crates {
        let uses = uses(&sources, &files)?;
        broken.extend(circles(&uses).into_iter().map(|circle| {
            let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            format!("{}: these modules use each other in a circle: {}", sources.display(), names.join(", "))
        }));
    }
    Ok(broken)
}

/// Returns the modules that each module of a crate uses, without tests.
fn uses(sources: &Path, files: &[&Path]) -> anyhow::Result<Uses> {
    let mut paths: BTreeMap<Module, Vec<Vec<String>>> = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for path in files {
        let module = module_of(path.strip_prefix(sources)?);
        let text = fs::read_to_string(root().join(path))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow!("{} is not Rust: {error}", path.display()))?;
        let mut found = Found::default();
        found.read(tokens);
        tests.extend(found.tests.into_iter().map(|name| [module.clone(), vec![name]].concat()));
        paths.insert(module, found.paths);
    }
    let is_test = |module: &Module| tests.iter().any(|test| module.starts_with(test));
    let modules: BTreeSet<Module> = paths.keys().filter(|module| !is_test(module)).cloned().collect();
    let used = |module: &Module, paths: &[Vec<String>]| {
        paths
            .iter()
            .filter_map(|path| resolve(module, path, &modules))
            .filter(|used| used != module)
            .collect()
    };
    Ok(modules.iter().map(|module| (module.clone(), used(module, &paths[module]))).collect())
}

/// Returns the module of a source file, given by its path below `src`.
fn module_of(path: &Path) -> Module {
    let path = path.with_extension("");
    let names: Module = path.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    match names.last().map(String::as_str) {
        Some("lib" | "main") => names[..names.len() - 1].to_vec(),
        _ => names,
    }
}

/// Returns the module that contains the item at `path`, as written in `module`. Returns `None` for items of the crate's
/// root and of other crates.
fn resolve(module: &Module, path: &[String], modules: &BTreeSet<Module>) -> Option<Module> {
    let above = path.iter().take_while(|name| *name == "super").count();
    let base = match path.first().map(String::as_str) {
        Some("crate") => &[],
        Some("super") => &module[..module.len().checked_sub(above)?],
        _ => module.as_slice(),
    };
    let skipped = if path.first().is_some_and(|name| name == "crate" || name == "self") { 1 } else { above };
    let mut item = [base, &path[skipped..]].concat();
    while !item.is_empty() && !modules.contains(&item) {
        item.pop();
    }
    (!item.is_empty()).then_some(item)
}

/// The paths of a source, and its test modules.
#[derive(Default)]
struct Found {
    paths: Vec<Vec<String>>,
    tests: Vec<String>,
}

impl Found {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if let Some((name, next)) = test_module(&tokens[at..]) {
                self.tests.push(name);
                at += next;
            } else if is_name(&tokens[at], &["crate", "super", "self", "use"]) {
                at += self.read_path(&tokens[at..]);
            } else {
                if let TokenTree::Group(group) = &tokens[at] {
                    self.read(group.stream());
                }
                at += 1;
            }
        }
    }

    /// Reads a path or a `use` item at the beginning of `tokens`. Returns the number of tokens read.
    fn read_path(&mut self, tokens: &[TokenTree]) -> usize {
        let begin = usize::from(is_name(&tokens[0], &["use"]));
        begin + self.read_tree(&tokens[begin..], &[])
    }

    /// Reads `a::b::{c, d::e}` after `prefix`. Returns the number of tokens read.
    fn read_tree(&mut self, tokens: &[TokenTree], prefix: &[String]) -> usize {
        let (mut path, mut at) = (prefix.to_vec(), 0);
        loop {
            match tokens.get(at) {
                Some(TokenTree::Ident(name)) => path.push(name.to_string()),
                Some(TokenTree::Group(group)) if at > 0 && group.delimiter() == Delimiter::Brace => {
                    let parts: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in parts.split(|token| is_mark(token, ',')).filter(|part| !part.is_empty()) {
                        self.read_tree(part, &path);
                    }
                    return at + 1;
                }
                _ => break,
            }
            at += 1;
            let goes_on =
                tokens.get(at..at + 2).is_some_and(|two| two.iter().all(|token| is_mark(token, ':')));
            if !goes_on {
                break;
            }
            at += 2;
        }
        self.paths.push(path);
        at.max(1)
    }
}

/// Returns the name of the module if `tokens` begin with `#[cfg(test)] mod name`, and the number of tokens.
fn test_module(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let [hash, TokenTree::Group(attribute), rest @ ..] = tokens else { return None };
    if !is_mark(hash, '#') || !attribute.stream().to_string().replace(' ', "").starts_with("cfg(test)") {
        return None;
    }
    let at = rest.iter().take(3).position(|token| is_name(token, &["mod"]))?;
    let TokenTree::Ident(name) = rest.get(at + 1)? else { return None };
    // The body of the module, or a semicolon, follows.
    Some((name.to_string(), at + 5))
}

fn is_name(token: &TokenTree, names: &[&str]) -> bool {
    matches!(token, TokenTree::Ident(ident) if names.iter().any(|name| ident == name))
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

/// Returns the circles among modules side by side. A module stands for all modules below it.
fn circles(uses: &Uses) -> BTreeSet<BTreeSet<Module>> {
    let mut beside: Uses = BTreeMap::new();
    for (from, to) in uses.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if common < from.len() && common < to.len() {
            beside.entry(from[..=common].to_vec()).or_default().insert(to[..=common].to_vec());
        }
    }
    let reached: Uses = beside.keys().map(|from| (from.clone(), reachable(from, &beside))).collect();
    let is_mutual = |a: &Module, b: &Module| reached.get(b).is_some_and(|reached| reached.contains(a));
    let circle = |(from, reached): (&Module, &BTreeSet<Module>)| -> BTreeSet<Module> {
        reached.iter().filter(|to| is_mutual(from, to)).cloned().collect()
    };
    reached.iter().map(circle).filter(|circle| circle.len() > 1).collect()
}

fn reachable(from: &Module, uses: &Uses) -> BTreeSet<Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in uses.get(module).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}
